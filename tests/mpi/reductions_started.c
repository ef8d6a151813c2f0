// SPDX-License-Identifier: Apache-2.0
//
// Nonblocking reductions that come again and again from the same call sites, as in a program's loop: completed in every
// way that MPI has, many at once and in another order on each rank, in place, by the program's operators, on
// communicators that come and go, with errors. Results are compared with the fold's association, literally.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#define CHECK(what)                                                   \
  do {                                                                \
    if (!(what)) {                                                    \
      fprintf(stderr, "rank %d, line %d: %s\n", me, __LINE__, #what); \
      MPI_Abort(MPI_COMM_WORLD, 3);                                   \
    }                                                                 \
  } while (0)

enum { kMany = 90, kMost = 600, kAllreduce = 0, kReduce, kScan, kExscan, kKinds };

static int me, ranks;
static MPI_Op mixing;

static double value(int rank, int at) { return (rank * 7 + at % 1001 + 1) / 3.0; }

static double joined(MPI_Op op, double low, double high) {
  return op == MPI_SUM ? low + high : op == MPI_MAX ? (low > high ? low : high) : low * 3 - high;
}

static double tree(MPI_Op op, int low, int high, int at) {
  if (high - low == 1) return value(low, at);
  int half = 1;
  while (half * 2 < high - low) half *= 2;
  return joined(op, tree(op, low, low + half, at), tree(op, low + half, high, at));
}

/// Neither commutes nor is it associative, which a program must not rely on; here the tree is known.
static void mix(void* low, void* high, int* n, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *n; i++) ((double*)high)[i] = ((double*)low)[i] * 3 - ((double*)high)[i];
}

/// One call site for each call.
static int start(int kind, const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                 MPI_Request* request) {
  switch (kind) {
    case kAllreduce: return MPI_Iallreduce(in, out, n, type, op, comm, request);
    case kReduce: return MPI_Ireduce(in, out, n, type, op, root, comm, request);
    case kScan: return MPI_Iscan(in, out, n, type, op, comm, request);
    default: return MPI_Iexscan(in, out, n, type, op, comm, request);
  }
}

static void check(int kind, MPI_Op op, int root, const double* out, int n, int at) {
  for (int k = 0; k < n; k++) switch (kind) {
      case kAllreduce: CHECK(out[k] == tree(op, 0, ranks, at + k)); break;
      case kReduce: CHECK(me != root || out[k] == tree(op, 0, ranks, at + k)); break;
      case kScan: CHECK(out[k] == tree(op, 0, me + 1, at + k)); break;
      default: CHECK(me == 0 || out[k] == tree(op, 0, me, at + k));
    }
}

static int finish(int way, MPI_Request* request) {
  int flag = 0, index = 0, result = 0;
  MPI_Status status;
  switch (way) {
    case 0: return MPI_Wait(request, MPI_STATUS_IGNORE);
    case 1: return MPI_Waitall(1, request, MPI_STATUSES_IGNORE);
    case 2:
      while (!flag && result == 0) result = MPI_Test(request, &flag, &status);
      return result;
    case 3:
      while (!flag && result == 0) result = MPI_Testall(1, request, &flag, MPI_STATUSES_IGNORE);
      return result;
    case 4: return MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE);
    case 5: return MPI_Waitsome(1, request, &flag, &index, MPI_STATUSES_IGNORE);
    case 6:
      while (!flag && result == 0) result = MPI_Testany(1, request, &index, &flag, &status);
      return result;
    default: {
      while (!flag && result == 0) result = MPI_Request_get_status(*request, &flag, &status);
      const int last = MPI_Wait(request, &status);
      return result != 0 ? result : last;
    }
  }
}
enum { kWays = 8 };

static void fill(double* values, int n, int at) {
  for (int k = 0; k < n; k++) values[k] = value(me, at + k);
}

/// Each kind, in each way, with predefined and with the program's operators, from one element to more than is gathered.
static void one_by_one(void) {
  static const int counts[] = {1, 2, 7, 64, kMost};
  static double in[kMost], out[kMost];
  for (int turn = 0; turn < 200; turn++) {
    const int n = counts[turn / 8 % 5], kind = turn / 40 % kKinds, way = turn % kWays, root = turn % ranks;
    const MPI_Op op = turn % 7 == 3 ? mixing : turn % 11 == 5 ? MPI_MAX : MPI_SUM;
    const int in_place = turn % 3 == 1 && (kind != kReduce || me == root);
    MPI_Request request;
    fill(in_place ? out : in, n, turn);
    CHECK(start(kind, in_place ? MPI_IN_PLACE : in, out, n, MPI_DOUBLE, op, root, MPI_COMM_WORLD, &request) == 0);
    CHECK(finish(way, &request) == 0);
    CHECK(request == MPI_REQUEST_NULL);
    check(kind, op, root, out, n, turn);
  }
}

/// A loop of one call, as most programs have it.
static void in_a_loop(void) {
  double in[2], out[2];
  for (int kind = 0; kind < kKinds; kind++)
    for (int way = 0; way < kWays; way++)
      for (int turn = 0; turn < 40; turn++) {
        MPI_Request request;
        fill(in, 2, turn);
        CHECK(start(kind, in, out, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &request) == 0);
        CHECK(finish(way, &request) == 0);
        check(kind, MPI_SUM, 0, out, 2, turn);
      }
}

/// More at once than a wait of the fast path takes, and fewer, among messages; each rank completes them in an order of
/// its own.
static void many(int all) {
  static double in[kMany], out[kMany];
  static int sent[kMany], got[kMany];
  MPI_Request requests[2 * kMany + 2];
  for (int turn = 0; turn < 12; turn++) {
    const int right = (me + 1) % ranks, left = (me + ranks - 1) % ranks;
    int used = 0;
    for (int i = 0; i < all; i++) {
      in[i] = value(me, i + turn);
      const MPI_Op op = i % 9 == 4 ? mixing : MPI_SUM;
      CHECK(start(i % 5 == 3 ? kScan : kAllreduce, &in[i], &out[i], 1, MPI_DOUBLE, op, 0, MPI_COMM_WORLD,
                  &requests[used++]) == 0);
      if (i % 4 != 1) continue;
      sent[i] = me + i;
      MPI_Irecv(&got[i], 1, MPI_INT, left, i, MPI_COMM_WORLD, &requests[used++]);
      MPI_Send(&sent[i], 1, MPI_INT, right, i, MPI_COMM_WORLD);
    }
    if (turn % 3 == 0) {
      CHECK(MPI_Waitall(used, requests, MPI_STATUSES_IGNORE) == 0);
    } else if (turn % 3 == 1) {
      for (int i = 0; i < used; i++) CHECK(MPI_Wait(&requests[me % 2 ? i : used - 1 - i], MPI_STATUS_IGNORE) == 0);
    } else {
      for (int done = 0, index; done < used; done++)
        CHECK(MPI_Waitany(used, requests, &index, MPI_STATUS_IGNORE) == 0 && index != MPI_UNDEFINED);
    }
    for (int i = 0; i < all; i++) {
      check(i % 5 == 3 ? kScan : kAllreduce, i % 9 == 4 ? mixing : MPI_SUM, 0, &out[i], 1, i + turn);
      if (i % 4 == 1) CHECK(got[i] == left + i);
    }
  }
}

/// Handles of communicators come again; they are freed before what they carry is complete. Operators likewise.
static void come_and_go(void) {
  for (int turn = 0; turn < 40; turn++) {
    MPI_Comm comm;
    MPI_Op op;
    MPI_Request requests[4];
    double in = value(me, turn), out[4];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Op_create(mix, 0, &op);
    for (int i = 0; i < 4; i++)
      CHECK(start(kAllreduce, &in, &out[i], 1, MPI_DOUBLE, i == 3 ? op : MPI_SUM, 0, comm, &requests[i]) == 0);
    MPI_Op_free(&op);
    MPI_Comm_free(&comm);
    for (int i = 3; i >= 0; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++) check(kAllreduce, i == 3 ? mixing : MPI_SUM, 0, &out[i], 1, turn);
  }
}

/// What every order gives the same result for is the library's, from the same call sites.
static void integers(void) {
  for (int turn = 0; turn < 60; turn++) {
    int in = me + turn, all = 0, after = 0, sum = 0;
    double part = value(me, turn), total = 0;
    MPI_Request requests[2];
    for (int r = 0; r < ranks; r++) sum += r + turn;
    CHECK(start(kAllreduce, &in, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD, &requests[0]) == 0);
    CHECK(start(kAllreduce, &part, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &requests[1]) == 0);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Allreduce(&in, &after, turn % 4 != 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == sum && after == (turn % 4 != 3 ? sum : 0));
    check(kAllreduce, MPI_SUM, 0, &total, 1, turn);
  }
}

/// Where the program rounds upwards, sums are those to nearest.
static void rounding(void) {
#ifdef __SSE__
  for (int turn = 0; turn < 20; turn++) {
    double in = value(me, turn), out = 0;
    MPI_Request request;
    _MM_SET_ROUNDING_MODE(_MM_ROUND_UP);
    CHECK(start(kAllreduce, &in, &out, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD, &request) == 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    CHECK(_MM_GET_ROUNDING_MODE() == _MM_ROUND_UP);
    _MM_SET_ROUNDING_MODE(_MM_ROUND_NEAREST);
    check(kAllreduce, MPI_SUM, 0, &out, 1, turn);
  }
#endif
}

static int class_of(int code) {
  int class = 0;
  MPI_Error_class(code, &class);
  return class;
}

/// Arguments that the library refuses, from call sites that were right before and are again afterwards.
static void refused(MPI_Comm comm) {
  double in = value(me, 1), out;
  for (int turn = 0; turn < 12; turn++) {
    MPI_Request request = MPI_REQUEST_NULL;
    CHECK(start(kReduce, &in, &out, 1, MPI_DOUBLE, MPI_SUM, 0, comm, &request) == 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    check(kReduce, MPI_SUM, 0, &out, 1, 1);
    CHECK(class_of(start(kReduce, &in, &out, 1, MPI_DOUBLE, MPI_SUM, ranks, comm, &request)) == MPI_ERR_ROOT);
    CHECK(class_of(start(kAllreduce, &in, &out, 1, MPI_DOUBLE, MPI_OP_NULL, 0, comm, &request)) == MPI_ERR_OP);
    CHECK(start(kAllreduce, &in, &out, 1, MPI_DOUBLE, MPI_SUM, 0, comm, &request) == 0);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == 0);
    check(kAllreduce, MPI_SUM, 0, &out, 1, 1);
  }
}

/// Vectors of different lengths, of ranks that share a node: every call that completes one says so.
static void different_lengths(MPI_Comm comm) {
  enum { kLong = 5000 };
  static double in[kLong], out[kLong];
  for (int turn = 0; turn < 3 * kWays; turn++) {
    MPI_Request request;
    const int way = turn % kWays, wrong = turn / kWays == 1;
    fill(in, kLong, turn);
    CHECK(start(kAllreduce, in, out, wrong && me == 0 ? kLong - 1 : kLong, MPI_DOUBLE, MPI_SUM, 0, comm, &request) ==
          0);
    CHECK(class_of(finish(way, &request)) == (wrong ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
    CHECK(request == MPI_REQUEST_NULL);
    if (!wrong) check(kAllreduce, MPI_SUM, 0, out, kLong, turn);
  }
}

int main(int argc, char** argv) {
  MPI_Comm comm;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Op_create(mix, 0, &mixing);
  one_by_one();
  in_a_loop();
  many(kMany);
  many(20);
  come_and_go();
  integers();
  rounding();
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  refused(comm);
  if (argc > 2 && ranks > 1) different_lengths(comm);
  MPI_Comm_free(&comm);
  MPI_Op_free(&mixing);
  MPI_Finalize();
  return 0;
}
