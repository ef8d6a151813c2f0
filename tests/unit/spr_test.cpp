// SPDX-License-Identifier: Apache-2.0
//
// Particle replication without MPI: each way of selecting covers every particle with as few replicas as it must, the
// hashed one selects the same on any number of ranks, packed lists are the program's, a flipped bit is found and named;
// and lists that cannot be are named.
#include <climits>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "check.h"
#include "detectors/spr/hashed.h"
#include "detectors/spr/packed.h"
#include "detectors/spr/select.h"
#include "tests/unit/spr_cloud.h"

using namespace resil::spr;

namespace {

std::vector<int> chosen_by(bool (*select)(const Lists&, Scratch&, Buffer<int>&, int64_t*), const Lists& lists) {
  Scratch scratch;
  Buffer<int> selected;
  int64_t count = 0;
  REQUIRE(select(lists, scratch, selected, &count));
  return {selected.data(), selected.data() + count};
}

/// Every local particle is selected or in the list of one that is; selected ones are not in each other's lists.
void require_covering(const Lists& lists, const std::vector<int>& selected) {
  std::vector<char> covered(static_cast<size_t>(lists.local));
  for (int particle : selected) covered[static_cast<size_t>(particle)] |= 2;
  for (int particle : selected)
    lists.neighbours(particle, [&](int64_t index) {
      if (index == particle || index >= lists.local) return;
      REQUIRE((covered[static_cast<size_t>(index)] & 2) == 0);
      covered[static_cast<size_t>(index)] |= 1;
    });
  for (char of_particle : covered) REQUIRE(of_particle != 0);
}

/// The set that `ranks` ranks select together from a cloud whose particles they share, as ids.
std::set<int64_t> hashed_by(const Cloud& cloud, int ranks, size_t* most_rounds = nullptr) {
  const std::vector<Part> parts = cloud.shared_by(ranks);
  std::vector<std::unique_ptr<Hashed>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const Part& part = parts[static_cast<size_t>(rank)];
    all.push_back(std::make_unique<Hashed>());
    int64_t twice = -1;
    REQUIRE(all.back()->begin(part.lists(), part.id.data(), part.owner.data(), rank, &twice));
  }
  for (int rank = 0; rank < ranks; ++rank)  // as who_named_me() would
    for (uint32_t i = 0; i < all[static_cast<size_t>(rank)]->partners(); ++i)
      REQUIRE(all[static_cast<size_t>(all[static_cast<size_t>(rank)]->partner(i).rank)]->add_partner(rank));
  size_t rounds = 0;
  for (bool open = true; open; ++rounds) {
    REQUIRE(rounds < 1000);
    open = false;
    std::map<std::pair<int, int>, std::vector<Word>> under_way;
    for (int rank = 0; rank < ranks; ++rank) {
      Hashed& own = *all[static_cast<size_t>(rank)];
      REQUIRE(own.decide());
      for (uint32_t i = 0; i < own.partners(); ++i) {
        Hashed::Partner& partner = own.partner(i);
        if (partner.closed) continue;
        under_way[{rank, partner.rank}] = {partner.out.data(), partner.out.data() + partner.words};
        partner.words = 0;
      }
    }
    for (auto& [way, words] : under_way) {
      Hashed& to = *all[static_cast<size_t>(way.second)];
      for (uint32_t i = 0; i < to.partners(); ++i)
        if (to.partner(i).rank == way.first) to.take(to.partner(i), words.data(), words.size());
    }
    for (auto& own : all)
      for (uint32_t i = 0; i < own->partners(); ++i) {
        Hashed::Partner& partner = own->partner(i);
        partner.closed = partner.we_finished && partner.they_finished;
        open = open || !partner.closed;
      }
  }
  if (most_rounds != nullptr) *most_rounds = rounds;
  std::set<int64_t> ids;
  for (int rank = 0; rank < ranks; ++rank) {
    Buffer<int> selected;
    int64_t count = 0;
    REQUIRE(all[static_cast<size_t>(rank)]->collect(selected, &count));
    for (int64_t i = 0; i < count; ++i)
      ids.insert(parts[static_cast<size_t>(rank)].id[static_cast<size_t>(selected[static_cast<size_t>(i)])]);
  }
  return ids;
}

}  // namespace

TEST_CASE("selections cover every particle, in any cloud, with the replicas that the documentation states") {
  struct {
    Cloud::Kind kind;
    double cover, hashed, greedy;  // percent, at most
  } const known[] = {{Cloud::kRandom, 2.4, 2.7, 2.7}, {Cloud::kLattice, 2.4, 3.0, 3.9}, {Cloud::kGlass, 2.4, 3.0, 3.8}};
  for (const auto& one : known) {
    const Cloud cloud(one.kind, 16, 100);
    const Part part = cloud.shared_by(1)[0];
    const double all = static_cast<double>(part.local) / 100;
    const std::vector<int> cover = chosen_by(select_cover, part.lists()),
                           greedy = chosen_by(select_greedy, part.lists());
    require_covering(part.lists(), cover);
    require_covering(part.lists(), greedy);
    const std::set<int64_t> hashed = hashed_by(cloud, 1);
    require_covering(part.lists(), {hashed.begin(), hashed.end()});  // ids are indices here
    INFO("cloud " << one.kind << ": cover " << static_cast<double>(cover.size()) / all << " %, hashed "
                  << static_cast<double>(hashed.size()) / all << " %, greedy "
                  << static_cast<double>(greedy.size()) / all << " %");
    CHECK(static_cast<double>(cover.size()) / all <= one.cover);
    CHECK(static_cast<double>(hashed.size()) / all <= one.hashed);
    CHECK(static_cast<double>(greedy.size()) / all <= one.greedy);
  }
}

TEST_CASE("hashed priority selects the same particles on any number of ranks") {
  for (Cloud::Kind kind : {Cloud::kRandom, Cloud::kGlass}) {
    const Cloud cloud(kind, 14, 60);
    const std::set<int64_t> one = hashed_by(cloud, 1);
    for (int ranks : {2, 3, 7, 16}) {
      size_t rounds = 0;
      CHECK(hashed_by(cloud, ranks, &rounds) == one);
      CHECK(rounds < 40);
    }
  }
}

TEST_CASE("hashed selection ends and covers with lists that are not symmetric") {
  Cloud cloud(Cloud::kRandom, 12, 40);
  cloud.drop_some(0.2);
  for (int ranks : {1, 2, 5}) {
    const std::set<int64_t> ids = hashed_by(cloud, ranks);
    CHECK(ids.size() > 10);
    CHECK(ids.size() < 12 * 12 * 12 / 4);
  }
}

TEST_CASE("an id that two particles have is named") {
  const Cloud cloud(Cloud::kRandom, 6, 20);
  Part part = cloud.shared_by(1)[0];
  part.id[17] = part.id[3];
  auto hashed = std::make_unique<Hashed>();
  int64_t twice = -1;
  CHECK(!hashed->begin(part.lists(), part.id.data(), nullptr, 0, &twice));
  CHECK(twice == part.id[3]);
}

TEST_CASE("isolated particles, none at all, and a particle that is its own neighbour") {
  const int64_t offsets[] = {0, 0, 1, 1};
  const int neighbours[] = {1};
  const Lists lonely = {3, 3, offsets, nullptr, neighbours, 0}, none = {0, 0, offsets, nullptr, neighbours, 0};
  for (auto select : {select_cover, select_greedy}) {
    CHECK(chosen_by(select, lonely) == std::vector<int>{0, 1, 2});
    CHECK(chosen_by(select, none).empty());
  }
}

TEST_CASE("lists that cannot be used are named by particle and value") {
  using Kind = ListProblem::Kind;
  int64_t offsets[] = {0, 2, 3, 5};
  int neighbours[] = {1, 3, 2, 0, 1};
  const Lists lists = {3, 4, offsets, nullptr, neighbours, 0};
  CHECK(check_lists(lists).kind == Kind::kNone);
  neighbours[2] = 4;
  CHECK((check_lists(lists).kind == Kind::kNeighbour && check_lists(lists).particle == 1));
  CHECK(check_lists(lists).value == 4);
  neighbours[2] = -1;
  CHECK(check_lists(lists).value == -1);
  for (int base : {0, 1, -1, 7, INT_MAX, INT_MIN})  // whatever an entry is: as in exact arithmetic
    for (int entry : {INT_MIN, INT_MIN + 1, -2, -1, 0, 1, 4, 5, 7, 10, 11, INT_MAX - 1, INT_MAX})
      for (int64_t total : {int64_t{4}, int64_t{INT_MAX}}) {
        const int64_t starts[] = {0, 1};
        const int64_t index = int64_t{entry} - base;
        CHECK((check_lists({1, total, starts, nullptr, &entry, base}).kind == Kind::kNone) ==
              (index >= 0 && index < total));
      }
  neighbours[2] = 2;
  offsets[2] = 1;
  CHECK((check_lists(lists).kind == Kind::kOffset && check_lists(lists).particle == 1));
  CHECK(check_lists({5, 4, offsets, nullptr, neighbours, 0}).kind == Kind::kCounts);
  CHECK(check_lists({-1, 4, offsets, nullptr, neighbours, 0}).kind == Kind::kCounts);
  CHECK(check_lists({3, 4, nullptr, nullptr, neighbours, 0}).kind == Kind::kOffset);
  // Fortran: numbered from 1 on, with counts and gaps.
  const int64_t starts[] = {0, 4, 8};
  const int counts[] = {2, 1, 2}, from_one[] = {2, 4, -9, -9, 3, -9, -9, -9, 1, 2};
  const Lists fortran = {3, 4, starts, counts, from_one, 1};
  CHECK(check_lists(fortran).kind == Kind::kNone);
  CHECK(chosen_by(select_greedy, fortran) == std::vector<int>{0, 2});
}

TEST_CASE("pairs that are one-sided are counted and one is named") {
  const int64_t offsets[] = {0, 2, 3, 4};
  const int neighbours[] = {1, 2, 0, 1};  // 2 has 1 and not 0; 0 has both; 1 has 0 only
  const int selected[] = {0, 2};
  const Symmetry seen = look_at_symmetry({3, 3, offsets, nullptr, neighbours, 0}, selected, 2, 0, 64);
  CHECK((seen.pairs == 3 && seen.one_sided == 2));
  CHECK((seen.first == 2 && seen.second == 0));
}

TEST_CASE("packed lists are the program's, in its order; replicas come first") {
  const Cloud cloud(Cloud::kGlass, 10, 50);
  for (const Part& part : cloud.shared_by(3)) {
    const std::vector<int> selected = chosen_by(select_cover, part.lists());
    Packed packed = {};
    REQUIRE(pack_lists(part.lists(), selected.data(), static_cast<int64_t>(selected.size()), part.id.data(), packed));
    CHECK(packed_is_sound(packed));
    REQUIRE(packed.replicas == static_cast<int>(selected.size()));
    std::set<int> once;
    for (int i = 0; i < packed.particles; ++i) {
      const auto at = static_cast<size_t>(i);
      CHECK(once.insert(packed.index[at]).second);
      CHECK(packed.id[at] == part.id[static_cast<size_t>(packed.index[at])]);
    }
    for (size_t i = 0; i < selected.size(); ++i) {
      CHECK(packed.index[i] == selected[i]);
      size_t entry = static_cast<size_t>(packed.offset[i]);
      part.lists().neighbours(selected[i], [&](int64_t index) {
        CHECK(packed.index[static_cast<size_t>(packed.neighbour[entry++])] == index);
      });
      CHECK(entry == static_cast<size_t>(packed.offset[i + 1]));
    }
    // Whatever was selected: as where replicas of other ranks cover some of a rank's particles.
    REQUIRE(
        pack_lists(part.lists(), selected.data(), static_cast<int64_t>(selected.size()) / 2, part.id.data(), packed));
    once.clear();
    for (int i = 0; i < packed.particles; ++i)
      if (packed.index[static_cast<size_t>(i)] < part.local)
        CHECK(once.insert(packed.index[static_cast<size_t>(i)]).second);
    CHECK(static_cast<int64_t>(once.size()) == part.local);
    packed.neighbour[0] = packed.particles;
    CHECK(!packed_is_sound(packed));
  }
}

TEST_CASE("any flipped bit of any field is found, with particle and element; low bits only where they may not differ") {
  const Cloud cloud(Cloud::kRandom, 8, 30);
  const Part part = cloud.shared_by(1)[0];
  const std::vector<int> selected = chosen_by(select_greedy, part.lists());
  Packed packed = {};
  REQUIRE(pack_lists(part.lists(), selected.data(), static_cast<int64_t>(selected.size()), nullptr, packed));
  struct Particle {
    double x[3];
    float h;
    int kind;
  };
  std::mt19937 random(7);
  std::vector<Particle> particles(static_cast<size_t>(part.total));
  for (Particle& one : particles)
    one = {{static_cast<double>(random()), 1.0 / (1.0 + random()), -static_cast<double>(random())}, 0.5f, 3};
  std::vector<char> copy(static_cast<size_t>(packed.particles) * 24);
  const char* const data = reinterpret_cast<const char*>(particles.data());
  pack_field(packed, data, 24, sizeof(Particle), copy.data());
  const auto look = [&](int low_bits) {
    return compare_field(packed, packed.particles, data, 24, sizeof(Particle), copy.data(), {8, low_bits});
  };
  REQUIRE(look(0).count == 0);
  for (int i = 0; i < 500; ++i) {
    const int number = static_cast<int>(random() % static_cast<unsigned>(packed.particles)), element = random() % 3,
              bit = random() % 64;
    double* const value = &particles[static_cast<size_t>(packed.index[static_cast<size_t>(number)])].x[element];
    uint64_t bits;
    memcpy(&bits, value, 8);
    bits ^= uint64_t{1} << bit;
    memcpy(value, &bits, 8);
    const Difference seen = look(0), tolerant = look(20);
    CHECK((seen.count == 1 && seen.first == number && seen.element == element));
    CHECK(tolerant.count == (bit >= 20));
    bits ^= uint64_t{1} << bit;
    memcpy(value, &bits, 8);
  }
  // Through zero, and across a change of exponent, neighbours are neighbours.
  double* const value = &particles[static_cast<size_t>(packed.index[0])].x[0];
  const double before[] = {-0.0, 1.0, 4.9e-324}, after[] = {0.0, std::nextafter(1.0, 0.0), -4.9e-324};
  for (int i = 0; i < 3; ++i) {
    memcpy(copy.data(), &before[i], 8);
    *value = after[i];
    CHECK((look(0).count == 1 && look(2).count == 0));
  }
  float narrow[2] = {1.0f, std::nextafter(1.0f, 2.0f)};
  Packed one = {};
  const int64_t offsets[] = {0, 0};
  const int nobody = 0, zero = 0;
  REQUIRE(pack_lists({1, 1, offsets, nullptr, &nobody, 0}, &zero, 1, nullptr, one));
  const char *left = reinterpret_cast<char*>(&narrow[0]), *right = reinterpret_cast<char*>(&narrow[1]);
  CHECK(compare_field(one, 1, left, 4, 4, right, {4, 0}).count == 1);
  CHECK(compare_field(one, 1, left, 4, 4, right, {4, 1}).count == 0);
  CHECK(compare_field(one, 1, left, 4, 4, right, {0, 0}).count == 1);
}
