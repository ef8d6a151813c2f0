// SPDX-License-Identifier: Apache-2.0
//
// Local calls that move data, carried out with the buffers that a module gives: one template for the parameters of
// each. Included by wrap.h once per ABI, inside its namespace.

constexpr bool moves_data(CallId id) {
  switch (id) {
    case CallId::kMPI_Pack:
    case CallId::kMPI_Pack_c:
    case CallId::kMPI_Pack_external:
    case CallId::kMPI_Pack_external_c:
    case CallId::kMPI_Unpack:
    case CallId::kMPI_Unpack_c:
    case CallId::kMPI_Unpack_external:
    case CallId::kMPI_Unpack_external_c:
    case CallId::kMPI_Reduce_local:
    case CallId::kMPI_Reduce_local_c: return true;
    default: return false;
  }
}

template <class Count>
int64_t packed_size(const LocalData& d) {
  constexpr CallId id = sizeof(Count) == 4 ? CallId::kMPI_Pack_size : CallId::kMPI_Pack_size_c;
  const LocalArgument& typed = d.in.type != 0 ? d.in : d.out;
  Count size = 0;
  const int code = real<int(Count, Datatype, Comm, Count*)>(1, id)(
      static_cast<Count>(typed.count), handle_of<Datatype>(typed.type), handle_of<Comm>(d.comm), &size);
  return code == 0 ? int64_t{size} : -1;
}

template <class Count, class Size>
int64_t packed_size_external(const LocalData& d) {
  constexpr CallId id = sizeof(Count) == 4 ? CallId::kMPI_Pack_external_size : CallId::kMPI_Pack_external_size_c;
  const LocalArgument& typed = d.in.type != 0 ? d.in : d.out;
  Size size = 0;
  const int code = real<int(const char*, Count, Datatype, Size*)>(1, id)(
      d.representation, static_cast<Count>(typed.count), handle_of<Datatype>(typed.type), &size);
  return code == 0 ? int64_t{size} : -1;
}

inline LocalArgument typed_argument(const void* buffer, int64_t count, Datatype type) {
  return {buffer, count, bits(type), static_cast<char*>(const_cast<void*>(buffer))};
}

inline LocalArgument packed_argument(const void* buffer, int64_t position, int64_t size) {
  char* const at = static_cast<char*>(const_cast<void*>(buffer)) + position;
  return {at, size > position ? size - position : 0, 0, at};
}

/// `call(in, out)` is the library's. `position`: of the packed side, what it was; the call moves it.
template <class Size, class Call>
int with_given(Thread& thread, LocalData& d, const Size* position, Call call) {
  const int64_t before = position != nullptr ? int64_t{*position} : 0;
  const LocalWay way = local_enter(thread, d);
  int result = 0;
  if (way != LocalWay::kRefused)
    result = call(d.in.given - (d.in.type == 0 ? before : 0), d.out.given - (d.out.type == 0 ? before : 0));
  return way == LocalWay::kAsItIs
             ? result
             : local_leave(thread, d, result, position != nullptr && d.out.type == 0 ? int64_t{*position} - before : 0);
}

template <int layer, CallId id, class Count, class Size>
[[gnu::noinline]] int move_data(Thread& thread, const void* in, Count count, Datatype type, void* out, Size size,
                                Size* position, Comm comm) {
  LocalData d = {
      id,      bits(comm), typed_argument(in, count, type), packed_argument(out, *position, size), packed_size<Count>,
      nullptr, nullptr};
  return with_given(thread, d, position, [&](const void* from, void* to) {
    return real<int(const void*, Count, Datatype, void*, Size, Size*, Comm)>(layer, id)(from, count, type, to, size,
                                                                                        position, comm);
  });
}

template <int layer, CallId id, class Count, class Size>
[[gnu::noinline]] int move_data(Thread& thread, const void* in, Size size, Size* position, void* out, Count count,
                                Datatype type, Comm comm) {
  LocalData d = {
      id,      bits(comm), packed_argument(in, *position, size), typed_argument(out, count, type), packed_size<Count>,
      nullptr, nullptr};
  return with_given(thread, d, position, [&](const void* from, void* to) {
    return real<int(const void*, Size, Size*, void*, Count, Datatype, Comm)>(layer, id)(from, size, position, to, count,
                                                                                        type, comm);
  });
}

template <int layer, CallId id, class Count, class Size>
[[gnu::noinline]] int move_data(Thread& thread, const char* how, const void* in, Count count, Datatype type, void* out,
                                Size size, Size* position) {
  LocalData d = {id,
                 0,
                 typed_argument(in, count, type),
                 packed_argument(out, *position, size),
                 packed_size_external<Count, Size>,
                 how,
                 nullptr};
  return with_given(thread, d, position, [&](const void* from, void* to) {
    return real<int(const char*, const void*, Count, Datatype, void*, Size, Size*)>(layer, id)(how, from, count, type,
                                                                                               to, size, position);
  });
}

template <int layer, CallId id, class Count, class Size>
[[gnu::noinline]] int move_data(Thread& thread, const char* how, const void* in, Size size, Size* position, void* out,
                                Count count, Datatype type) {
  LocalData d = {id,
                 0,
                 packed_argument(in, *position, size),
                 typed_argument(out, count, type),
                 packed_size_external<Count, Size>,
                 how,
                 nullptr};
  return with_given(thread, d, position, [&](const void* from, void* to) {
    return real<int(const char*, const void*, Size, Size*, void*, Count, Datatype)>(layer, id)(
        how, from, size, position, to, count, type);
  });
}

template <int layer, CallId id, class Count>
[[gnu::noinline]] int move_data(Thread& thread, const void* in, void* inout, Count count, Datatype type, Op op) {
  LocalData d = {id, 0, typed_argument(in, count, type), typed_argument(inout, count, type), nullptr, nullptr, nullptr};
  return with_given<Count>(thread, d, nullptr, [&](const void* from, void* to) {
    return real<int(const void*, void*, Count, Datatype, Op)>(layer, id)(from, to, count, type, op);
  });
}
