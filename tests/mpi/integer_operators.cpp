// SPDX-License-Identifier: Apache-2.0
//
// By hand: which predefined operators an MPI library computes on integers otherwise than two's complement does. What it
// found is why fold_is_native (pipeline/reduction/fold.h) says no for some; docs/REDUCTIONS.md has the list.
//
//   mpicxx -O1 tests/mpi/integer_operators.cpp -o /tmp/integer_operators && mpiexec -n 1 /tmp/integer_operators
//
// Prints a line for each operator and type with a wrong element or that is refused, and ends with "done".
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

namespace {

const struct {
  const char* name;
  MPI_Op op;
} kOperators[] = {{"SUM", MPI_SUM}, {"PROD", MPI_PROD}, {"MIN", MPI_MIN},   {"MAX", MPI_MAX}, {"BAND", MPI_BAND},
                  {"BOR", MPI_BOR}, {"BXOR", MPI_BXOR}, {"LAND", MPI_LAND}, {"LOR", MPI_LOR}, {"LXOR", MPI_LXOR}};

template <class T>
T wanted(size_t op, T x, T y) {
  const uint64_t a = static_cast<uint64_t>(x), b = static_cast<uint64_t>(y);
  switch (op) {
    case 0: return static_cast<T>(a + b);
    case 1: return static_cast<T>(a * b);
    case 2: return std::min(x, y);
    case 3: return std::max(x, y);
    case 4: return static_cast<T>(a & b);
    case 5: return static_cast<T>(a | b);
    case 6: return static_cast<T>(a ^ b);
    case 7: return x && y;
    case 8: return x || y;
    default: return !x != !y;
  }
}

/// Enough for all pairs of bytes, and for a tail that vectors do not reach.
template <class T>
void look(const char* name, MPI_Datatype type) {
  constexpr int kCount = (1 << 16) + 13;
  std::mt19937_64 random(1);
  std::vector<T> x(kCount), y(kCount), result;
  for (int i = 0; i < kCount; ++i) {
    x[i] = sizeof(T) == 1 ? static_cast<T>(i) : i % 7 == 0 ? T{} : static_cast<T>(random());
    y[i] = sizeof(T) == 1 ? static_cast<T>(i >> 8)
           : i % 5 == 0   ? static_cast<T>(random() % 999)
                          : static_cast<T>(random());
  }
  for (size_t op = 0; op < sizeof(kOperators) / sizeof(*kOperators); ++op) {
    result = y;
    if (MPI_Reduce_local(x.data(), result.data(), kCount, type, kOperators[op].op) != MPI_SUCCESS) {
      printf("%s %s: refused\n", name, kOperators[op].name);
      continue;
    }
    int wrong = 0, first = 0, last = 0;
    for (int i = kCount; i-- > 0;)
      if (result[i] != wanted(op, x[i], y[i])) {
        last = wrong++ == 0 ? i : last;
        first = i;
      }
    if (wrong > 0)
      printf("%s %s: %d of %d wrong, the last at %d; %lld and %lld gave %lld\n", name, kOperators[op].name, wrong,
             kCount, last, static_cast<long long>(x[first]), static_cast<long long>(y[first]),
             static_cast<long long>(result[first]));
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  look<int8_t>("MPI_INT8_T", MPI_INT8_T);
  look<uint8_t>("MPI_UINT8_T", MPI_UINT8_T);
  look<int16_t>("MPI_INT16_T", MPI_INT16_T);
  look<uint16_t>("MPI_UINT16_T", MPI_UINT16_T);
  look<int32_t>("MPI_INT32_T", MPI_INT32_T);
  look<uint32_t>("MPI_UINT32_T", MPI_UINT32_T);
  look<int64_t>("MPI_INT64_T", MPI_INT64_T);
  look<uint64_t>("MPI_UINT64_T", MPI_UINT64_T);
  look<signed char>("MPI_SIGNED_CHAR", MPI_SIGNED_CHAR);
  look<unsigned char>("MPI_UNSIGNED_CHAR", MPI_UNSIGNED_CHAR);
  look<char>("MPI_CHAR", MPI_CHAR);
  look<unsigned char>("MPI_BYTE", MPI_BYTE);
  look<short>("MPI_SHORT", MPI_SHORT);
  look<unsigned short>("MPI_UNSIGNED_SHORT", MPI_UNSIGNED_SHORT);
  look<int>("MPI_INT", MPI_INT);
  look<unsigned>("MPI_UNSIGNED", MPI_UNSIGNED);
  look<long>("MPI_LONG", MPI_LONG);
  look<unsigned long>("MPI_UNSIGNED_LONG", MPI_UNSIGNED_LONG);
  look<long long>("MPI_LONG_LONG", MPI_LONG_LONG);
  look<MPI_Aint>("MPI_AINT", MPI_AINT);
  look<MPI_Offset>("MPI_OFFSET", MPI_OFFSET);
  look<MPI_Count>("MPI_COUNT", MPI_COUNT);
  look<signed char>("MPI_INTEGER1", MPI_INTEGER1);
  look<short>("MPI_INTEGER2", MPI_INTEGER2);
  look<int>("MPI_INTEGER", MPI_INTEGER);
  look<long long>("MPI_INTEGER8", MPI_INTEGER8);
  puts("done");
  MPI_Finalize();
}
