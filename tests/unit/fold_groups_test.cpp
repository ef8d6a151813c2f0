// SPDX-License-Identifier: Apache-2.0
//
// Folds by groups of ranks (pipeline/reduction/groups.h), against the literal tree. All ranks are played by one thread:
// who arrives while another waits, and whether the last rank of a group has folded it by then, is drawn by chance.
//
// A failure here means that two ranks of a reduction could have different results, that a rank could wait for one that
// it does not need, or that vectors of different lengths are not told by all.
#include <algorithm>
#include <numeric>

#include "pipeline/reduction/groups.h"
#include "tests/unit/fold_fixture.h"

using namespace fold_fixture;
using namespace resil::reduction;
using resil::OpKind;

namespace {

enum class Kind : unsigned { kAllreduce, kReduce, kScan, kExscan, kCount };

constexpr int kMost = 128;
constexpr size_t kStride = 1408, kCells = 64;
constexpr RingShape kShape = {
    0, kCells, kStride, sizeof(CellHead), 4, kStride - sizeof(CellHead), kCells + 4 * kStride};

/// All ranks of a communicator, and one step of them.
class World {
 public:
  World(int size, std::mt19937_64& random) : size_(size), random_(random), rings_(static_cast<size_t>(size)) {
    for (int r = 0; r < size; ++r) {
      blocks_.emplace_back(new Block());
      bases_.push_back(blocks_.back()->bytes);
    }
    for (int r = 0; r < size; ++r) rings_[static_cast<size_t>(r)].open(kShape, bases_.data(), size, r, 7);
  }

  /// Each rank's result, empty: none; whether it has told different lengths.
  struct Result {
    std::vector<unsigned char> bytes;
    bool differs;
  };
  struct Step {
    Kind kind;
    int root;
    Kernel kernel;
    std::vector<std::vector<unsigned char>> inputs;  ///< by rank
    unsigned folds_in_eight;  ///< so often has a group been folded when somebody looks
  };

  std::vector<Result> run(const Step& step) {
    step_ = &step;
    shown_.assign(static_cast<size_t>(size_), false);
    begun_ = shown_;
    results_.assign(static_cast<size_t>(size_), Result{});
    std::vector<int> order(static_cast<size_t>(size_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (int r : order) play(r);
    for (int r : order) {
      Rings& mine = rings_[static_cast<size_t>(r)];
      mine.finish(wanted(r) == size_);
    }
    return results_;
  }
  int wanted(int rank) const {
    switch (step_->kind) {
      case Kind::kAllreduce: return size_;
      case Kind::kReduce: return rank == step_->root ? size_ : 0;
      case Kind::kScan: return rank + 1;
      default: return rank;
    }
  }
  int taken = 0, folded_again = 0;  ///< folds of other groups that were there, that were not

 private:
  struct alignas(64) Block {
    char bytes[kCells + 8 * kStride] = {};
  };
  struct Waits {
    World& world;
    int rank;
    bool contribution(int other) const {
      REQUIRE(other < world.wanted(rank));
      world.show(other);
      return world.ring(rank).what(other) != world.step_->inputs[static_cast<size_t>(rank)].size();
    }
    bool fold(int other) const {
      REQUIRE(other < world.wanted(rank));
      if (world.random_() % 8 < world.step_->folds_in_eight) world.play(other);
      const bool there = world.ring(rank).fold_shown(other);
      ++(there ? world.taken : world.folded_again);
      return there;
    }
  };

  Rings& ring(int rank) { return rings_[static_cast<size_t>(rank)]; }
  void show(int rank) {
    if (shown_[static_cast<size_t>(rank)]) return;
    shown_[static_cast<size_t>(rank)] = true;
    const auto& input = step_->inputs[static_cast<size_t>(rank)];
    int behind = 0;
    REQUIRE(ring(rank).writable(&behind));
    memcpy(ring(rank).own(), input.data(), input.size());
    ring(rank).show(input.size());
  }
  /// The rank's whole step.
  void play(int rank) {
    if (begun_[static_cast<size_t>(rank)]) return;
    begun_[static_cast<size_t>(rank)] = true;
    show(rank);
    const size_t bytes = step_->inputs[static_cast<size_t>(rank)].size();
    const bool shows = step_->kind == Kind::kAllreduce ? shows_to_all(rank, size_)
                       : step_->kind == Kind::kReduce  ? shows_to_root(rank, size_, step_->root)
                                                       : shows_to_higher(rank, size_);
    const GroupFold f = {
        step_->kernel, rank, size_, wanted(rank), shows, step_->kind != Kind::kReduce, bytes / step_->kernel.unit,
        bytes};
    std::unique_ptr<char[]> scratch(new char[group_scratch(size_, bytes) + 64]);
    std::vector<unsigned char> output(bytes, 0xa5);
    auto* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(scratch.get()) + 63) / 64 * 64);
    Result& result = results_[static_cast<size_t>(rank)];
    result.differs =
        fold_by_groups<kMost>(ring(rank), f, reinterpret_cast<char*>(output.data()), aligned, Waits{*this, rank});
    if (!result.differs && f.ranks != 0) result.bytes = output;
  }

  const int size_;
  std::mt19937_64& random_;
  std::vector<Rings> rings_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<char*> bases_;
  const Step* step_ = nullptr;
  std::vector<bool> shown_, begun_;
  std::vector<Result> results_;
};

World::Step step_of(const Problem& problem, OpKind op, Kind kind, std::mt19937_64& random) {
  World::Step step = {kind, static_cast<int>(random() % problem.ranks), find_kernel(op, problem.type.type), {}, 0};
  step.folds_in_eight = static_cast<unsigned>(random() % 9);
  for (size_t r = 0; r < problem.ranks; ++r) {
    step.inputs.emplace_back(problem.count * problem.type.extent, 0);
    for (size_t i = 0; i < problem.count; ++i)
      memcpy(step.inputs[r].data() + i * problem.type.extent, problem.values[i][r].data(), problem.type.extent);
  }
  return step;
}

void check_step(World& world, const Problem& problem, OpKind op, const World::Step& step) {
  const std::vector<World::Result> results = world.run(step);
  for (size_t r = 0; r < problem.ranks; ++r) {
    INFO("rank " << r << ", kind " << static_cast<unsigned>(step.kind));
    CHECK_FALSE(results[r].differs);
    const int wanted = world.wanted(static_cast<int>(r));
    REQUIRE(results[r].bytes.empty() == (wanted == 0));
    for (size_t i = 0; i < problem.count && wanted != 0; ++i) {
      const std::vector<Bytes> first(problem.values[i].begin(), problem.values[i].begin() + wanted);
      const Bytes tree =
          wanted == 1 ? fold_oracle::alone(problem.type, first[0]) : fold_oracle::tree(problem.type, op, first);
      check_element(problem.type, tree, results[r].bytes.data() + i * problem.type.extent, problem, i);
    }
  }
}

const TypeCase& type_named(const char* name) {
  for (const TypeCase& type : fold_oracle::types())
    if (type.name == name) return type;
  FAIL("no type " << name);
  return fold_oracle::types()[0];
}

}  // namespace

TEST_CASE("folds by groups are the canonical tree, for 1 to 40 ranks and more") {
  std::mt19937_64 random(seed(40));
  const TypeCase& type = type_named("floating8");
  std::vector<int> sizes(40);
  std::iota(sizes.begin(), sizes.end(), 1);
  for (int size : {57, 63, 64, 65, 100, 127, 128}) sizes.push_back(size);
  int taken = 0, folded_again = 0;
  for (int size : sizes) {
    INFO(size << " ranks");
    World world(size, random);
    for (int turn = 0; turn < 3; ++turn)  // cells are used again
      for (unsigned kind = 0; kind < static_cast<unsigned>(Kind::kCount); ++kind) {
        const Problem problem(type, static_cast<size_t>(size), 1 + random() % 4, random() % 4, random);
        check_step(world, problem, OpKind::kSum, step_of(problem, OpKind::kSum, static_cast<Kind>(kind), random));
      }
    taken += world.taken;
    folded_again += world.folded_again;
  }
  CHECK(taken > 100);
  CHECK(folded_again > 100);
}

TEST_CASE("folds by groups are the canonical tree, for every operator and type") {
  std::mt19937_64 random(seed(41));
  for (const TypeCase& type : fold_oracle::types())
    for (OpKind op : type.ops) {
      INFO("operator " << static_cast<int>(op));
      const size_t size = 9 + random() % 40, most = kShape.most / type.extent;
      const size_t count = 1 + random() % (random() % 8 == 0 ? most : std::min<size_t>(most, 3));
      const Problem problem(type, size, count, random() % 4, random);
      World world(static_cast<int>(size), random);
      check_step(world, problem, op, step_of(problem, op, static_cast<Kind>(random() % 4), random));
    }
}

TEST_CASE("of a group that has been folded only the fold is read") {
  std::mt19937_64 random(seed(42));
  for (int size : {16, 17, 33, 128}) {
    const Problem problem(type_named("floating8"), static_cast<size_t>(size), 1, 0, random);
    World::Step step = step_of(problem, OpKind::kSum, Kind::kAllreduce, random);
    step.folds_in_eight = 8;
    World world(size, random);
    check_step(world, problem, OpKind::kSum, step);
    // A group that waits for its own fold, by way of others, finds it not: the last rank has begun.
    CHECK(world.taken > world.folded_again);
  }
}

TEST_CASE("vectors of different lengths are told by all who read them, whoever folds") {
  std::mt19937_64 random(seed(43));
  for (int turn = 0; turn < 300; ++turn) {
    const size_t size = 9 + random() % 40;
    const Problem problem(type_named("floating8"), size, 2, 0, random);
    World::Step step = step_of(problem, OpKind::kSum, Kind::kAllreduce, random);
    const size_t odd = random() % size, many = 1 + random() % 12;
    INFO(size << " ranks, from " << odd << " on " << many);
    for (size_t r = odd; r < size && r < odd + many; ++r) step.inputs[r].resize(8);
    if (odd == 0 && many >= size) continue;
    World world(static_cast<int>(size), random);
    for (const World::Result& result : world.run(step)) CHECK(result.differs);
  }
}
