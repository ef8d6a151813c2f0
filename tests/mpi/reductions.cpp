// SPDX-License-Identifier: Apache-2.0
//
// Every kind of reduction, bit for bit against an oracle: the documented tree by plain recursion (order), or
// __float128 sums of values that it holds exactly (exact). Contributions follow from the rank in the communicator, so
// that the digests that rank 0 prints must be the same for every MPI, placement and order of arrival.
//
// reductions native|order|exact [world|reversed|shuffled] [SEED of delays]
#include "reductions_oracle.h"

namespace {

// --- Checks ------------------------------------------------------------------------------------------------------

uint64_t total_digest;  ///< of results that every MPI has the call for
bool digested = true;
std::string name;

template <class T>
std::vector<T> mine(const Case<T>& c, long count) {
  std::vector<T> values(static_cast<size_t>(count) + 1);  // one more: never empty
  memset(static_cast<void*>(values.data()), 0, values.size() * sizeof(T));
  for (long i = 0; i < count; ++i) values[static_cast<size_t>(i)] = contribution(c, rank, i);
  return values;
}

/// The same memory, for a request that will be started again.
template <class T>
void refill(const Case<T>& c, long count, std::vector<T>& values) {
  const auto fresh = mine(c, count);
  std::copy(fresh.begin(), fresh.end(), values.begin());
}

/// Elements [first, first + count) of the reduction over contributions [0, high).
template <class T>
void verify(const Case<T>& c, const T* result, int high, long first, long count, const char* what) {
  for (long i = 0; i < count; ++i) {
    if (digested) total_digest = total_digest * 1099511628211u + digest(result[i]);
    if ((mode == Mode::kNative && !c.free_of_order) || same(result[i], expected(c, 0, high, first + i))) continue;
    const T right = expected(c, 0, high, first + i);
    uint64_t got = 0, want = 0;
    memcpy(&got, &result[i], sizeof(T) < 8 ? sizeof(T) : 8);
    memcpy(&want, &right, sizeof(T) < 8 ? sizeof(T) : 8);
    fprintf(stderr, "rank %d of %d, %s, %s: element %ld of %ld is %016llx, not %016llx\n", rank, ranks, name.c_str(),
            what, i, count, static_cast<unsigned long long>(got), static_cast<unsigned long long>(want));
    _exit(1);
  }
}

/// The same call in its blocking, nonblocking, persistent and large-count forms.
enum class How { kBlocking, kStarted, kLarge, kPersistent };
const char* text_of(How how) {
  return how == How::kBlocking  ? "blocking"
         : how == How::kStarted ? "nonblocking"
         : how == How::kLarge   ? "large count"
                                : "persistent";
}
#if MPI_VERSION >= 4
const std::vector<How> kHows = {How::kBlocking, How::kStarted, How::kLarge, How::kPersistent};
#else
const std::vector<How> kHows = {How::kBlocking, How::kStarted};
#endif

void finish(MPI_Request* request) {
  static unsigned turn;
  int flag = 0, index = 0;
  switch (++turn % 5) {
    case 0: OK(MPI_Wait(request, MPI_STATUS_IGNORE)); break;
    case 1: OK(MPI_Waitall(1, request, MPI_STATUSES_IGNORE)); break;
    case 2: OK(MPI_Waitany(1, request, &index, MPI_STATUS_IGNORE)); break;
    case 3:
      while (!flag) OK(MPI_Test(request, &flag, MPI_STATUS_IGNORE));
      break;
    default:
      while (!flag) OK(MPI_Request_get_status(*request, &flag, MPI_STATUS_IGNORE));
  }
}

template <class Restore, class Verify>
void complete(How how, MPI_Request* request, Restore restore, Verify check) {
  if (how == How::kStarted) {
    finish(request);
    check();
    if (*request != MPI_REQUEST_NULL) OK(MPI_Wait(request, MPI_STATUS_IGNORE));
  } else if (how == How::kPersistent) {
    for (int start = 0; start < 3; ++start) {
      restore();
      delay();
      OK(MPI_Start(request));
      finish(request);
      check();
      OK(MPI_Wait(request, MPI_STATUS_IGNORE));
    }
    OK(MPI_Request_free(request));
  }
}

#if MPI_VERSION >= 4
#define REDUCTION(how, request, name, ...)                                     \
  do {                                                                         \
    if ((how) == How::kBlocking) OK(MPI_##name(__VA_ARGS__));                  \
    else if ((how) == How::kStarted) OK(MPI_I##name(__VA_ARGS__, &(request))); \
    else if ((how) == How::kLarge) OK(MPI_##name##_c(__VA_ARGS__));            \
    else OK(MPI_##name##_init(__VA_ARGS__, MPI_INFO_NULL, &(request)));        \
  } while (0)
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IReduce MPI_Ireduce
#define MPI_IScan MPI_Iscan
#define MPI_IExscan MPI_Iexscan
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block
#else
#define MPI_IAllreduce MPI_Iallreduce
#define MPI_IReduce MPI_Ireduce
#define MPI_IScan MPI_Iscan
#define MPI_IExscan MPI_Iexscan
#define MPI_IReduce_scatter_block MPI_Ireduce_scatter_block
#define REDUCTION(how, request, name, ...)                    \
  do {                                                        \
    if ((how) == How::kBlocking) OK(MPI_##name(__VA_ARGS__)); \
    else OK(MPI_I##name(__VA_ARGS__, &(request)));            \
  } while (0)
#endif

template <class T>
void check_everywhere(const Case<T>& c, long count, How how, bool in_place) {
  auto in = mine(c, count), out = mine(c, count);
  MPI_Request request = MPI_REQUEST_NULL;
  const int n = static_cast<int>(count);
  const void* send = in_place ? MPI_IN_PLACE : in.data();
  const char* what = in_place ? "Allreduce in place" : "Allreduce";
  auto restore = [&] { refill(c, count, out); };
  delay();
  REDUCTION(how, request, Allreduce, send, out.data(), n, c.type, c.op, comm);
  auto check = [&] { verify(c, out.data(), ranks, 0, count, what); };
  if (how == How::kBlocking || how == How::kLarge) check();
  complete(how, &request, restore, check);

  for (int exclusive = 0; exclusive < 2; ++exclusive) {
    restore();
    delay();
    if (exclusive) REDUCTION(how, request, Exscan, send, out.data(), n, c.type, c.op, comm);
    else REDUCTION(how, request, Scan, send, out.data(), n, c.type, c.op, comm);
    auto prefix = [&] {
      if (!exclusive || rank > 0)
        verify(c, out.data(), exclusive ? rank : rank + 1, 0, count, exclusive ? "Exscan" : "Scan");
      else  // undefined, so every MPI leaves it alone
        for (long i = 0; i < count; ++i) CHECK(same(out[static_cast<size_t>(i)], contribution(c, rank, i)));
    };
    if (how == How::kBlocking || how == How::kLarge) prefix();
    complete(how, &request, restore, prefix);
  }

  const int root = static_cast<int>((count + c.salt) % ranks);
  restore();
  const bool root_in_place = in_place && rank == root;
  delay();
  REDUCTION(how, request, Reduce, root_in_place ? MPI_IN_PLACE : in.data(), rank == root ? out.data() : nullptr, n,
            c.type, c.op, root, comm);
  auto at_root = [&] {
    if (rank == root) verify(c, out.data(), ranks, 0, count, "Reduce");
  };
  if (how == How::kBlocking || how == How::kLarge) at_root();
  complete(how, &request, restore, at_root);
}

template <class T>
void check_scattered(const Case<T>& c, long block, How how, bool in_place) {
  MPI_Request request = MPI_REQUEST_NULL;
  const long total = block * ranks;
  auto in = mine(c, total), out = mine(c, total);
  auto restore = [&] { refill(c, total, out); };
  const void* send = in_place ? MPI_IN_PLACE : in.data();
  delay();
  REDUCTION(how, request, Reduce_scatter_block, send, out.data(), static_cast<int>(block), c.type, c.op, comm);
  auto check = [&] { verify(c, out.data(), ranks, rank * block, block, "Reduce_scatter_block"); };
  if (how == How::kBlocking || how == How::kLarge) check();
  complete(how, &request, restore, check);

  // Blocks of different length, some empty.
  std::vector<int> counts(static_cast<size_t>(ranks));
  long start = 0, all = 0;
  for (int r = 0; r < ranks; ++r) {
    counts[static_cast<size_t>(r)] = static_cast<int>(r % 3 == 1 ? 0 : block + r);
    if (r < rank) start += counts[static_cast<size_t>(r)];
    all += counts[static_cast<size_t>(r)];
  }
  const long own = counts[static_cast<size_t>(rank)];
  auto in2 = mine(c, all), out2 = mine(c, all);
  auto restore2 = [&] { refill(c, all, out2); };
  send = in_place ? MPI_IN_PLACE : in2.data();
  delay();
  switch (how) {
    case How::kBlocking: OK(MPI_Reduce_scatter(send, out2.data(), counts.data(), c.type, c.op, comm)); break;
    case How::kStarted: OK(MPI_Ireduce_scatter(send, out2.data(), counts.data(), c.type, c.op, comm, &request)); break;
#if MPI_VERSION >= 4
    case How::kLarge: {
      std::vector<MPI_Count> large(counts.begin(), counts.end());
      OK(MPI_Reduce_scatter_c(send, out2.data(), large.data(), c.type, c.op, comm));
      break;
    }
    case How::kPersistent:
      OK(MPI_Reduce_scatter_init(send, out2.data(), counts.data(), c.type, c.op, comm, MPI_INFO_NULL, &request));
      break;
#endif
    default: break;
  }
  auto check2 = [&] { verify(c, out2.data(), ranks, start, own, "Reduce_scatter"); };
  if (how == How::kBlocking || how == How::kLarge) check2();
  complete(how, &request, restore2, check2);
}

void print(const char* what) {
  std::vector<uint64_t> all(static_cast<size_t>(ranks));
  OK(MPI_Gather(&total_digest, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, 0, comm));
  uint64_t together = 0;
  for (uint64_t one : all) together = together * 31 + one;
  if (rank == 0) printf("%s %016llx\n", what, static_cast<unsigned long long>(together));
  total_digest = 0;
}

int salts;

template <class T>
void check_all(const char* text, MPI_Datatype type, MPI_Op op, Naive<T> naive, bool free_of_order, bool is_sum,
               const std::vector<long>& counts) {
  Case<T> c = {type, op, naive, free_of_order, is_sum, ++salts};
  name = text;
  seen_type = type;
  for (long count : counts)
    for (How how : kHows)
      for (bool in_place : {false, true}) {
        name = std::string(text) + " x " + std::to_string(count) + ", " + text_of(how);
        digested = how == How::kBlocking || how == How::kStarted;
        check_everywhere(c, count, how, in_place);
        check_scattered(c, count, how, in_place);
        digested = true;
      }
  CHECK(!wrong_type);
  print(text);
}

template <class F>
void floating(const std::string& text, MPI_Datatype type) {
  const std::vector<long> counts = {0, 1, 33};
  check_all<F>((text + " sum").c_str(), type, MPI_SUM, sum<F>, false, true, counts);
  check_all<F>((text + " product").c_str(), type, MPI_PROD, product<F>, false, false, counts);
  check_all<F>((text + " min").c_str(), type, MPI_MIN, least<F>, true, false, counts);
  check_all<F>((text + " max").c_str(), type, MPI_MAX, most<F>, true, false, counts);
}

template <class F>
void complex_numbers(const std::string& text, MPI_Datatype type) {
  const std::vector<long> counts = {1, 17};
  check_all<std::complex<F>>((text + " sum").c_str(), type, MPI_SUM, sum<std::complex<F>>, false, true, counts);
  check_all<std::complex<F>>((text + " product").c_str(), type, MPI_PROD, complex_product<F>, false, false, counts);
}

template <class P>
void pairs(const std::string& text, MPI_Datatype type) {
  const std::vector<long> counts = {1, 29};
  check_all<P>((text + " maxloc").c_str(), type, MPI_MAXLOC, max_at<P>, true, false, counts);
  check_all<P>((text + " minloc").c_str(), type, MPI_MINLOC, min_at<P>, true, false, counts);
}

template <class I>
void integers(const std::string& text, MPI_Datatype type) {
  const std::vector<long> counts = {5};
  // Open MPI 4.1's vector code saturates sums of 8 and 16 bits, but not all; MPICH 4.0 compares uint64_t as signed.
  const bool right = sizeof(I) >= 4;
  check_all<I>((text + " sum").c_str(), type, MPI_SUM, sum<I>, right, false, counts);
  check_all<I>((text + " product").c_str(), type, MPI_PROD, product<I>, true, false, counts);
  check_all<I>((text + " min").c_str(), type, MPI_MIN, least<I>, right && std::is_signed_v<I>, false, counts);
  check_all<I>((text + " max").c_str(), type, MPI_MAX, most<I>, right && std::is_signed_v<I>, false, counts);
  check_all<I>((text + " land").c_str(), type, MPI_LAND, both<I>, true, false, counts);
  check_all<I>((text + " lor").c_str(), type, MPI_LOR, either<I>, true, false, counts);
  check_all<I>((text + " lxor").c_str(), type, MPI_LXOR, differ<I>, true, false, counts);
  check_all<I>((text + " band").c_str(), type, MPI_BAND, bit_and<I>, true, false, counts);
  check_all<I>((text + " bor").c_str(), type, MPI_BOR, bit_or<I>, true, false, counts);
  check_all<I>((text + " bxor").c_str(), type, MPI_BXOR, bit_xor<I>, true, false, counts);
}

void user_operators() {
  MPI_Op op;
  OK(MPI_Op_create(user<double, skew>, 0, &op));
  check_all<double>("user skew", MPI_DOUBLE, op, skew, false, false, {1, 50, 3000});
  OK(MPI_Op_free(&op));

  MPI_Datatype matrix;
  OK(MPI_Type_contiguous(4, MPI_DOUBLE, &matrix));
  OK(MPI_Type_commit(&matrix));
  OK(MPI_Op_create(user<Matrix, times>, 0, &op));
  check_all<Matrix>("user matrix product", matrix, op, times, false, false, {1, 40});
  OK(MPI_Op_free(&op));
  OK(MPI_Type_free(&matrix));

  const int lengths[] = {1, 1};
  const MPI_Aint places[] = {offsetof(Affine, scale), offsetof(Affine, shift)};
  const MPI_Datatype types[] = {MPI_UINT32_T, MPI_UINT64_T};
  MPI_Datatype fields, affine;
  OK(MPI_Type_create_struct(2, lengths, places, types, &fields));
  OK(MPI_Type_create_resized(fields, 0, sizeof(Affine), &affine));
  OK(MPI_Type_commit(&affine));
  OK(MPI_Op_create(user<Affine, after>, 0, &op));
  check_all<Affine>("user affine maps", affine, op, after, true, false, {1, 21, 9000});
  // The gaps of the program's buffer are the program's.
  Affine in = Value<Affine>::make(static_cast<uint64_t>(rank)), out = {};
  memset(&out, 0x5a, sizeof(out));
  OK(MPI_Allreduce(&in, &out, 1, affine, op, comm));
  for (char byte : out.gap) CHECK(mode == Mode::kNative || byte == 0x5a);
  // Freed while the reduction is under way: type and operator are needed until it is complete.
  Case<Affine> c = {affine, op, after, true, false, 999};
  auto values = mine(c, 60), results = mine(c, 60);
  MPI_Request request;
  OK(MPI_Iallreduce(values.data(), results.data(), 60, affine, op, comm, &request));
  OK(MPI_Op_free(&op));
  OK(MPI_Type_free(&affine));
  OK(MPI_Type_free(&fields));
  CHECK(op == MPI_OP_NULL && affine == MPI_DATATYPE_NULL);
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  verify(c, results.data(), ranks, 0, 60, "Iallreduce with freed handles");
  print("user freed");
}

/// Several under way at once, completed in an order of their own.
void many_at_once() {
  Case<double> c = {MPI_DOUBLE, MPI_SUM, sum<double>, false, true, 0};
  constexpr int kMany = 24;
  std::vector<std::vector<double>> in(kMany), out(kMany);
  MPI_Request requests[kMany + 1];
  name = "many at once";
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kMany; ++i) {
      c.salt = 1000 + i;
      in[i] = mine(c, 10 * i);
      out[i] = in[i];
      OK(MPI_Iallreduce(in[i].data(), out[i].data(), 10 * i, MPI_DOUBLE, MPI_SUM, comm, &requests[i]));
    }
    OK(MPI_Ibarrier(comm, &requests[kMany]));
    bool done[kMany + 1] = {};
    if (round == 0) {
      OK(MPI_Waitall(kMany + 1, requests, MPI_STATUSES_IGNORE));
    } else if (round == 1) {
      for (int left = kMany + 1; left > 0; --left) {
        int index;
        OK(MPI_Waitany(kMany + 1, requests, &index, MPI_STATUS_IGNORE));
        CHECK(!done[index]);
        done[index] = true;
        if (index < kMany) {
          c.salt = 1000 + index;
          verify(c, out[index].data(), ranks, 0, 10 * index, "Waitany");
          total_digest = 0;  // the order is not the same everywhere
        }
      }
    } else if (round == 2) {
      int left = kMany + 1, indices[kMany + 1], count;
      while (left > 0) {
        OK(MPI_Testsome(kMany + 1, requests, &count, indices, MPI_STATUSES_IGNORE));
        left -= count;
      }
    } else {
      for (int i = kMany; i >= 0; --i) OK(MPI_Wait(&requests[(i * 7) % (kMany + 1)], MPI_STATUS_IGNORE));
    }
    for (int i = 0; i < kMany; ++i) {
      c.salt = 1000 + i;
      verify(c, out[i].data(), ranks, 0, 10 * i, "several under way");
    }
  }
  print("many at once");
}

void large_vectors() {
  const std::vector<long> sizes = {9000, 300000 + rank * 0};
  for (long count : sizes) {
    Case<double> c = {MPI_DOUBLE, MPI_SUM, sum<double>, false, true, 4000};
    name = "large " + std::to_string(count);
    check_everywhere(c, count, How::kBlocking, false);
    check_everywhere(c, count, How::kBlocking, true);
    check_scattered(c, count / ranks, How::kBlocking, false);
    check_scattered(c, count / ranks, How::kBlocking, true);
    check_everywhere(c, count, How::kStarted, false);
    check_scattered(c, count / ranks, How::kStarted, true);
  }
  Case<double> c = {MPI_DOUBLE, MPI_SUM, sum<double>, false, true, 4001};
  const long many = 1200001;  // several segments
  auto in = mine(c, many), out = mine(c, many);
  OK(MPI_Allreduce(in.data(), out.data(), static_cast<int>(many), MPI_DOUBLE, MPI_SUM, comm));
  verify(c, out.data(), ranks, 0, many, "several segments");
  print("large");
}

void intercommunicators() {
  if (ranks < 2) return;
  // The lower half and the upper half; contributions are numbered by the rank in the group.
  const int half = ranks / 2, low = rank < half;
  MPI_Comm group, inter;
  OK(MPI_Comm_split(comm, low, rank, &group));
  OK(MPI_Intercomm_create(group, 0, comm, low ? half : 0, 5, &inter));
  int remote, own;
  OK(MPI_Comm_remote_size(inter, &remote));
  OK(MPI_Comm_rank(inter, &own));
  const int whole_rank = rank;
  name = "intercommunicator";
  for (int started = 0; started < 2; ++started)
    for (long count : {1L, 40L, 9000L}) {
      // What the other side sends: salt by side.
      Case<double> ours = {MPI_DOUBLE, MPI_SUM, sum<double>, false, true, 5000 + low};
      Case<double> theirs = {MPI_DOUBLE, MPI_SUM, sum<double>, false, true, 5000 + !low};
      rank = own;
      auto in = mine(ours, count), out = mine(ours, count);
      rank = whole_rank;
      MPI_Request request;
      const int n = static_cast<int>(count);
      if (started) {
        OK(MPI_Iallreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, inter, &request));
        finish(&request);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      } else {
        OK(MPI_Allreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, inter));
      }
      verify(theirs, out.data(), remote, 0, count, "Allreduce");

      // The root is the last of the lower half.
      const int root = low ? (own == half - 1 ? MPI_ROOT : MPI_PROC_NULL) : half - 1;
      if (started) {
        OK(MPI_Ireduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, root, inter, &request));
        finish(&request);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      } else {
        OK(MPI_Reduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, root, inter));
      }
      if (root == MPI_ROOT) verify(theirs, out.data(), remote, 0, count, "Reduce");

      // The total is what both sides can divide.
      const int size = ranks - remote;
      const long total = count * half * (ranks - half);
      if (total > 20000) continue;
      rank = own;
      auto all = mine(ours, total), part = mine(ours, total);
      rank = whole_rank;
      const long block = total / size;
      if (started) {
        OK(MPI_Ireduce_scatter_block(all.data(), part.data(), static_cast<int>(block), MPI_DOUBLE, MPI_SUM, inter,
                                     &request));
        finish(&request);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
      } else {
        OK(MPI_Reduce_scatter_block(all.data(), part.data(), static_cast<int>(block), MPI_DOUBLE, MPI_SUM, inter));
      }
      verify(theirs, part.data(), remote, own * block, block, "Reduce_scatter_block");
      std::vector<int> counts(static_cast<size_t>(size), static_cast<int>(block));
      if (size > 1) {
        counts[0] += counts[1];
        counts[1] = 0;
      }
      long first = 0;
      for (int r = 0; r < own; ++r) first += counts[static_cast<size_t>(r)];
      OK(MPI_Reduce_scatter(all.data(), part.data(), counts.data(), MPI_DOUBLE, MPI_SUM, inter));
      verify(theirs, part.data(), remote, first, counts[static_cast<size_t>(own)], "Reduce_scatter");
    }
  OK(MPI_Comm_free(&inter));
  OK(MPI_Comm_free(&group));
  print("intercommunicator");
}

[[maybe_unused]] int class_of(int code) {
  int error_class = 0;
  if (code != MPI_SUCCESS) OK(MPI_Error_class(code, &error_class));
  return error_class;
}

/// What MPI refuses it still refuses, with its own code. (Debian's MPICH is built without these checks.)
void errors() {
#ifdef OPEN_MPI
  MPI_Comm quiet;
  OK(MPI_Comm_dup(comm, &quiet));
  OK(MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN));
  double in = 1, out = 0;
  struct {
    double value;
    int index;
  } pair = {1, 2}, other = {};
  CHECK(class_of(MPI_Allreduce(&in, &out, -1, MPI_DOUBLE, MPI_SUM, quiet)) == MPI_ERR_COUNT);
  CHECK(class_of(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_OP_NULL, quiet)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Allreduce(&in, &out, 1, MPI_DATATYPE_NULL, MPI_SUM, quiet)) != MPI_SUCCESS);
  CHECK(class_of(MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_BAND, quiet)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Allreduce(&pair, &other, 1, MPI_DOUBLE_INT, MPI_SUM, quiet)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Reduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, ranks, quiet)) == MPI_ERR_ROOT);
  CHECK(class_of(MPI_Reduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, -7, quiet)) == MPI_ERR_ROOT);
  OK(MPI_Comm_free(&quiet));
#endif
}

}  // namespace

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  CHECK(argc > 1);
  mode = !strcmp(argv[1], "exact") ? Mode::kExact : !strcmp(argv[1], "order") ? Mode::kOrder : Mode::kNative;
  const std::string layout = argc > 2 ? argv[2] : "world";
  delays = argc > 3 ? strtoul(argv[3], nullptr, 10) : 0;
  int world;
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &world));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &ranks));
  const int key = layout == "reversed"   ? -world
                  : layout == "shuffled" ? static_cast<int>(mix(static_cast<uint64_t>(world)) & 0xffff)
                                         : world;
  OK(MPI_Comm_split(MPI_COMM_WORLD, 0, key, &comm));
  OK(MPI_Comm_rank(comm, &rank));

  floating<float>("float", MPI_FLOAT);
  floating<double>("double", MPI_DOUBLE);
  floating<long double>("long double", MPI_LONG_DOUBLE);
  complex_numbers<float>("complex float", MPI_C_FLOAT_COMPLEX);
  complex_numbers<double>("complex double", MPI_C_DOUBLE_COMPLEX);
  complex_numbers<long double>("complex long double", MPI_C_LONG_DOUBLE_COMPLEX);
  pairs<Pair<float, int>>("float and int", MPI_FLOAT_INT);
  pairs<Pair<double, int>>("double and int", MPI_DOUBLE_INT);
  pairs<Pair<long, int>>("long and int", MPI_LONG_INT);
  pairs<Pair<short, int>>("short and int", MPI_SHORT_INT);
  pairs<Pair<int, int>>("two ints", MPI_2INT);
  pairs<Pair<long double, int>>("long double and int", MPI_LONG_DOUBLE_INT);
  integers<int>("int", MPI_INT);
  integers<uint64_t>("uint64_t", MPI_UINT64_T);
  integers<int8_t>("int8_t", MPI_INT8_T);
  integers<short>("short", MPI_SHORT);
  user_operators();
  many_at_once();
  large_vectors();
  intercommunicators();
  errors();
  OK(MPI_Comm_free(&comm));
  if (world == 0) printf("reductions %s\n", argv[1]);
  OK(MPI_Finalize());
  return 0;
}
