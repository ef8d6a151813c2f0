// SPDX-License-Identifier: Apache-2.0
//
// A C++ program: exceptions thrown between MPI calls and out of a function that holds one, RAII communicators,
// static objects whose destructors run after MPI_Finalize, and threads of the standard library.
//
// ranks: 2
// calls: MPI_Init=1 MPI_Comm_dup=3 MPI_Comm_free=3 MPI_Allreduce=3 MPI_Alltoallv=1 MPI_Finalize=1
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

class Communicator {
 public:
  Communicator() { OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm_)); }
  ~Communicator() { OK(MPI_Comm_free(&comm_)); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  double sum(double value) const {
    double result = 0;
    OK(MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_SUM, comm_));
    if (result > 100) throw std::runtime_error("too much: " + std::to_string(result));
    return result;
  }
  MPI_Comm get() const { return comm_; }

 private:
  MPI_Comm comm_;
};

struct Last {
  ~Last() {
    int flag = 0;
    OK(MPI_Finalized(&flag));
    CHECK(flag);
  }
} last;

}  // namespace

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  int me = 0;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  double total = 0;
  std::string text;
  for (int k = 0; k < 3; k++) {
    try {
      Communicator comm;
      total += comm.sum(k * 30.0 + me);
      if (k == 1) {
        std::vector<int> counts{1 + me, 1 + me}, from{0, 1 + me}, arriving{1, 2}, at{0, 1}, in(3), out(4, me + 1);
        OK(MPI_Alltoallv(out.data(), counts.data(), from.data(), MPI_INT, in.data(), arriving.data(), at.data(),
                         MPI_INT, comm.get()));
        CHECK(std::accumulate(in.begin(), in.end(), 0) == 5);
      }
    } catch (const std::exception& error) { text = error.what(); }
  }
  std::thread([] {}).join();
  OK(MPI_Finalize());
  if (me == 0) printf("cxx %g, %s\n", total, text.c_str());
  return 0;
}
