// SPDX-License-Identifier: Apache-2.0
//
// Part of type_digest: what predefined types and operators are, life of the maps, absolute addresses, compactness.

#include <mpi.h>
#include <time.h>

#include <cfloat>
#include <cstdint>
#include <cstring>
#include <vector>

#include "check.h"
#include "shim/abi/backend.h"
#include "shim/base/digest/digest.h"
#include "shim/tables/type_maps.h"

using resil::BasicKind;
using resil::BasicType;
using resil::OpKind;
using resil::type_map;
using resil::TypeMap;

namespace {

template <class Handle>
uint64_t bits(Handle handle) {
  if constexpr (sizeof(Handle) == 8) return reinterpret_cast<uint64_t>(handle);
  else return static_cast<uint32_t>(handle);
}

const TypeMap* map_of(MPI_Datatype type) { return type_map(*resil::current_thread, bits(type)); }

void is(MPI_Datatype type, BasicKind kind, int width) {
  const BasicType basic = resil::backend->types->basic(bits(type));
  CHECK(basic.kind == kind && basic.width == width);
  const TypeMap* map = map_of(type);
  CHECK(map != nullptr && map->permanent && map->contiguous == !map->padded && map->basic == basic &&
        map->size == basic.width);
}

void is_pair(MPI_Datatype type, BasicKind kind, int value_width, int index_width, int pieces, bool twin = false) {
  const BasicType basic = resil::backend->types->basic(bits(type));
  CHECK(basic.kind == BasicKind::kPair && basic.value_kind == kind && basic.twin == twin);
  CHECK(basic.value_width == value_width && basic.index_width == index_width);
  const TypeMap* map = map_of(type);
  CHECK(map != nullptr && map->permanent && map->run_count == static_cast<unsigned>(pieces));
}

void basics() {
  is(MPI_INT, BasicKind::kSigned, 4);
  is(MPI_UNSIGNED_LONG, BasicKind::kUnsigned, 8);
  is(MPI_DOUBLE, BasicKind::kFloating, 8);
  is(MPI_LONG_DOUBLE, BasicKind::kLongDouble, sizeof(long double));
  is(MPI_BYTE, BasicKind::kByte, 1);
  is(MPI_PACKED, BasicKind::kPacked, 1);
  is(MPI_CHAR, BasicKind::kCharacter, 1);
  is(MPI_SIGNED_CHAR, BasicKind::kSigned, 1);
  is(MPI_WCHAR, BasicKind::kCharacter, sizeof(wchar_t));
  is(MPI_C_BOOL, BasicKind::kLogical, 1);
  is(MPI_C_DOUBLE_COMPLEX, BasicKind::kComplex, 16);
  is(MPI_CXX_FLOAT_COMPLEX, BasicKind::kComplex, 8);
  is(MPI_INT8_T, BasicKind::kSigned, 1);
  is(MPI_UINT64_T, BasicKind::kUnsigned, 8);
  is(MPI_AINT, BasicKind::kSigned, 8);
  is(MPI_COUNT, BasicKind::kSigned, 8);
  is(MPI_OFFSET, BasicKind::kSigned, 8);
  is(MPI_INTEGER, BasicKind::kSigned, 4);
  is(MPI_REAL8, BasicKind::kFloating, 8);
  is(MPI_DOUBLE_PRECISION, BasicKind::kFloating, 8);
  is(MPI_LOGICAL, BasicKind::kLogical, 4);
  is(MPI_DOUBLE_COMPLEX, BasicKind::kComplex, 16);
  is_pair(MPI_DOUBLE_INT, BasicKind::kFloating, 8, 4, 1);
  is_pair(MPI_FLOAT_INT, BasicKind::kFloating, 4, 4, 1);
  is_pair(MPI_LONG_INT, BasicKind::kSigned, 8, 4, 1);
  is_pair(MPI_SHORT_INT, BasicKind::kSigned, 2, 4, 2);  // two bytes of padding between them
  is_pair(MPI_2INT, BasicKind::kSigned, 4, 4, 1);
  is_pair(MPI_LONG_DOUBLE_INT, BasicKind::kLongDouble, sizeof(long double), 4, 1);
  is_pair(MPI_2INTEGER, BasicKind::kSigned, 4, 4, 1, true);
  is_pair(MPI_2DOUBLE_PRECISION, BasicKind::kFloating, 8, 8, 1, true);
  MPI_Datatype real;
  OK(MPI_Type_create_f90_real(12, MPI_UNDEFINED, &real));
  is(real, BasicKind::kFloating, 8);
#if defined(OPEN_MPI) && LDBL_MANT_DIG == 64  // MPICH has no such type
  OK(MPI_Type_create_f90_real(18, MPI_UNDEFINED, &real));
  is(real, BasicKind::kLongDouble, 16);
  OK(MPI_Type_create_f90_complex(16, 4000, &real));
  is(real, BasicKind::kLongDoubleComplex, 32);
#endif
  CHECK(map_of(MPI_DATATYPE_NULL) == nullptr);
}

void add(void*, void*, int*, MPI_Datatype*) {}

void operators() {
  auto kind = [](MPI_Op op) { return resil::backend->types->op_kind(bits(op)); };
  CHECK(kind(MPI_OP_NULL) == OpKind::kNone && kind(MPI_SUM) == OpKind::kSum && kind(MPI_MAX) == OpKind::kMax);
  CHECK(kind(MPI_MIN) == OpKind::kMin && kind(MPI_PROD) == OpKind::kProd && kind(MPI_LAND) == OpKind::kLand);
  CHECK(kind(MPI_BAND) == OpKind::kBand && kind(MPI_LOR) == OpKind::kLor && kind(MPI_BOR) == OpKind::kBor);
  CHECK(kind(MPI_LXOR) == OpKind::kLxor && kind(MPI_BXOR) == OpKind::kBxor && kind(MPI_MAXLOC) == OpKind::kMaxloc);
  CHECK(kind(MPI_MINLOC) == OpKind::kMinloc && kind(MPI_REPLACE) == OpKind::kReplace &&
        kind(MPI_NO_OP) == OpKind::kNoOp);
  MPI_Op user;
  OK(MPI_Op_create(add, 1, &user));
  CHECK(kind(user) == OpKind::kUser);
  OK(MPI_Op_free(&user));
}

MPI_Datatype vector(int count, int length, int stride) {
  MPI_Datatype type;
  OK(MPI_Type_vector(count, length, stride, MPI_INT, &type));
  OK(MPI_Type_commit(&type));
  return type;
}

/// A map lives as long as its handle; a handle that is used again gets the map of the new type.
void lives() {
  for (int i = 0; i < 200; ++i) {
    MPI_Datatype type = vector(2 + i % 7, 1, 3 + i % 5);
    const TypeMap* map = map_of(type);
    CHECK(map != nullptr && map->size == 4u * static_cast<unsigned>(2 + i % 7));
    CHECK(map->runs[0].stride == 4 * (3 + i % 5));
    OK(MPI_Type_free(&type));
  }
  // Held over the end of the type, as a pending operation does.
  MPI_Datatype type = vector(3, 1, 2);
  const TypeMap* map = map_of(type);
  resil::type_map_hold(map);
  OK(MPI_Type_free(&type));
  for (int i = 0; i < 50; ++i) {
    MPI_Datatype other = vector(10, 2, 9);
    CHECK(map_of(other) != map);
    OK(MPI_Type_free(&other));
  }
  int data[5] = {1, 2, 3, 4, 5}, packed[3];
  CHECK(resil::type_pack(*map, data, 1, 0, 12, packed) == 12);
  CHECK(packed[0] == 1 && packed[1] == 3 && packed[2] == 5);
  resil::type_map_release(map);
  // A duplicate has a map of its own: it may outlive the original.
  MPI_Datatype first = vector(4, 1, 2), second;
  map = map_of(first);
  OK(MPI_Type_dup(first, &second));
  CHECK(map_of(second) != map);
  OK(MPI_Type_free(&first));
  CHECK(map_of(second)->size == 16);
  OK(MPI_Type_free(&second));
}

/// Two buffers of their own as one message from MPI_BOTTOM.
void absolute() {
  std::vector<int> a(100, 1), b(50, 2);
  MPI_Aint places[2];
  OK(MPI_Get_address(a.data(), &places[0]));
  OK(MPI_Get_address(b.data(), &places[1]));
  int lengths[2] = {100, 50};
  MPI_Datatype type;
  OK(MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type));
  OK(MPI_Type_commit(&type));
  const TypeMap* map = map_of(type);
  CHECK(map != nullptr && !map->contiguous && map->size == 600);
  std::vector<int> both(a);
  both.insert(both.end(), b.begin(), b.end());
  CHECK(resil::type_digest(*map, MPI_BOTTOM, 1, 600) == resil::digest(both.data(), 600));
  std::vector<int> packed(150);
  CHECK(resil::type_pack(*map, MPI_BOTTOM, 1, 0, 600, packed.data()) == 600 && packed == both);
  int64_t low, high;
  resil::type_span(*map, 1, &low, &high);
  CHECK(low == (places[0] < places[1] ? places[0] : places[1]));
  OK(MPI_Type_free(&type));
  // One buffer: in one piece, but not at the buffer's address.
  OK(MPI_Type_create_hindexed(1, lengths, places, MPI_INT, &type));
  OK(MPI_Type_commit(&type));
  CHECK(!map_of(type)->contiguous);
  CHECK(resil::type_digest(*map_of(type), MPI_BOTTOM, 1, 400) == resil::digest(a.data(), 400));
  OK(MPI_Type_free(&type));
}

void compact() {
  MPI_Datatype type, column;
  OK(MPI_Type_vector(1000000, 1, 1000, MPI_DOUBLE, &type));  // a column
  OK(MPI_Type_commit(&type));
  CHECK(map_of(type)->run_count == 1);
  OK(MPI_Type_free(&type));
  int sizes[] = {64, 64, 64, 64}, subsizes[] = {8, 16, 32, 64}, starts[] = {1, 2, 3, 0};
  OK(MPI_Type_create_subarray(4, sizes, subsizes, starts, MPI_ORDER_C, MPI_DOUBLE, &type));
  OK(MPI_Type_commit(&type));
  CHECK(map_of(type)->run_count == 8);  // whole planes' parts at one stride
  OK(MPI_Type_free(&type));
  OK(MPI_Type_vector(1000, 1, 1000, MPI_DOUBLE, &column));
  OK(MPI_Type_create_hvector(1000, 1, sizeof(double), column, &type));  // a transposed matrix
  OK(MPI_Type_commit(&type));
  CHECK(map_of(type)->run_count == 1000);
  OK(MPI_Type_free(&type));
  OK(MPI_Type_free(&column));
  OK(MPI_Type_contiguous(1 << 21, MPI_SHORT_INT, &type));  // more pieces than are kept
  OK(MPI_Type_commit(&type));
  CHECK(map_of(type) == nullptr && map_of(type) == nullptr);
  OK(MPI_Type_free(&type));
}

double seconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Body>
void measure(const char* what, long rounds, Body body) {
  double best = 1e9;
  for (int batch = 0; batch < 20; ++batch) {
    const double start = seconds();
    for (long i = 0; i < rounds; ++i) body(i);
    const double took = seconds() - start;
    best = took < best ? took : best;
  }
  printf("%-58s %9.2f ns\n", what, best / static_cast<double>(rounds) * 1e9);
}

}  // namespace

void fixed_types() {
  basics();
  operators();
  lives();
  absolute();
  compact();
}

void speed() {
  static volatile uint64_t sink;
  const uint64_t kinds[2] = {bits(MPI_DOUBLE), bits(MPI_INT)};
  resil::Thread& thread = *resil::current_thread;
  measure("type_map, predefined, in the thread's cache", 1000000,
          [&](long i) { sink = type_map(thread, kinds[i & 1])->size; });
  measure("a derived type's first time: make, map, free", 1000, [&](long) {
    MPI_Datatype type = vector(100, 1, 3);
    sink = map_of(type)->size;
    OK(MPI_Type_free(&type));
  });
  measure("  the same without the map", 1000, [&](long) {
    MPI_Datatype type = vector(100, 1, 3);
    OK(MPI_Type_free(&type));
  });
  std::vector<double> data(1 << 20, 1.5);
  MPI_Datatype strided = vector(4096, 2, 4), column;
  OK(MPI_Type_vector(1000, 1, 1000, MPI_DOUBLE, &column));
  const TypeMap *map = map_of(strided), *far = map_of(column), *pairs = map_of(MPI_DOUBLE_INT);
  measure("digest of 32 KiB contiguous", 1000, [&](long) { sink = resil::digest(data.data(), 32768); });
  measure("digest of 32 KiB in pieces of 8 bytes, 16 apart", 1000,
          [&](long) { sink = resil::type_digest(*map, data.data(), 1, 32768); });
  measure("digest of 8 KB in pieces of 8 bytes, 8 KB apart", 1000,
          [&](long) { sink = resil::type_digest(*far, data.data(), 1, 8000); });
  measure("digest of 1000 MPI_DOUBLE_INT", 1000,
          [&](long) { sink = resil::type_digest(*pairs, data.data(), 1000, 12000); });
  OK(MPI_Type_free(&strided));
  OK(MPI_Type_free(&column));
}
