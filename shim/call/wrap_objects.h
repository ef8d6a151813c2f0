// SPDX-License-Identifier: Apache-2.0
//
// Around calls that make or free an object, so that what is left at MPI_Finalize is known (shim/tables/live_objects.h).
// Only the wrappers of such calls have it; gen.py says which. Included by wrap.h once per ABI, inside its namespace.

/// Of the handle's kinds that MPI itself hands out: predefined objects and null handles are nobody's to free.
inline bool is_predefined(MpiObject kind, uint64_t handle) {
  if (kind >= MpiObject::kCommKeyval) return false;
  if constexpr (kAbiName[0] == 'o') return is_static_object(handle);
  // The two top bits of MPICH's say where the object lies; its pairs, MPI_FLOAT_INT and so on, are the first five of
  // those datatypes that it makes as programs do.
  if constexpr (kAbiName[0] == 'm') return handle >> 30 <= 1 || handle - 0x8c000000 < 5;
  return handle < 4096;
}

/// Where the handle is, or what it is.
template <class Handle>
inline bool object_handle(Handle* place, uint64_t* handle) {
  if (place == nullptr) return false;
  *handle = bits(*place);
  return true;
}
inline bool object_handle(uint64_t value, uint64_t* handle) {
  *handle = value;
  return true;
}

template <CallId id, class Place, class Call>
[[gnu::always_inline]] inline int making(Place place, uint64_t return_address, uint64_t frame, Call call) {
  constexpr MpiObject kind = call_info(id).makes;
  const ObjectCall here(id, frame);
  const int result = call();
  uint64_t handle = 0;
  if (result == 0 && object_handle(place, &handle) && !is_predefined(kind, handle))
    object_made(here, kind, handle, id, return_address, frame);
  return result;
}

template <CallId id, class Place, class Call>
[[gnu::always_inline]] inline int freeing(Place place, uint64_t return_address, uint64_t frame, Call call) {
  constexpr MpiObject kind = call_info(id).frees;
  const ObjectCall here(id, frame);
  LiveObject was = {};
  uint64_t handle = 0;
  if (object_handle(place, &handle)) was = object_freed(here, kind, handle, return_address, frame);
  const int result = call();
  if (result != 0) [[unlikely]]
    object_kept(was);
  return result;
}

/// MPI_Type_get_contents: a reference more to each datatype that programs make.
template <CallId id, class Call>
[[gnu::always_inline]] inline int making_contents(Datatype type, const Datatype* parts, uint64_t return_address,
                                                  uint64_t frame, Call call) {
  const ObjectCall here(id, frame);
  const int result = call();
  if (result != 0) return result;
  int64_t count = 0;
  int combiner = 0;
  if constexpr (id == CallId::kMPI_Type_get_contents) {
    int numbers[3] = {};
    real<int(Datatype, int*, int*, int*, int*)>(1, CallId::kMPI_Type_get_envelope)(type, &numbers[0], &numbers[1],
                                                                                   &numbers[2], &combiner);
    count = numbers[2];
  } else {
    int64_t numbers[3] = {};
    real<int(Datatype, int64_t*, int64_t*, int64_t*, int64_t*, int*)>(1, CallId::kMPI_Type_get_envelope_c)(
        type, &numbers[0], &numbers[1], &numbers[2], &count, &combiner);
  }
  for (int64_t i = 0; i < count; ++i)
    if (is_made_type(bits(parts[i])))
      object_made(here, MpiObject::kDatatype, bits(parts[i]), id, return_address, frame);
  return result;
}
