// SPDX-License-Identifier: Apache-2.0
//
// Clouds of particles in a periodic box, with their neighbour lists, shared by any number of ranks in slabs with the
// copies that each needs.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "detectors/spr/lists.h"

/// What one rank has of a cloud.
struct Part {
  int64_t local = 0, total = 0;
  std::vector<int64_t> id, offset;
  std::vector<int> neighbour, owner;
  resil::spr::Lists lists() const { return {local, total, offset.data(), nullptr, neighbour.data(), 0}; }
};

class Cloud {
 public:
  enum Kind { kRandom, kLattice, kGlass };

  /// side^3 particles with about `neighbours` neighbours each.
  Cloud(Kind kind, int side, double neighbours) {
    std::mt19937_64 random(5);
    std::uniform_real_distribution<double> any(0, 1);
    const double cell = 1.0 / side;
    for (int i = 0; i < side; ++i)
      for (int j = 0; j < side; ++j)
        for (int k = 0; k < side; ++k) {
          const double at[3] = {(i + 0.5) * cell, (j + 0.5) * cell, (k + 0.5) * cell};
          for (double x : at)
            place_.push_back(kind == kRandom  ? any(random)
                             : kind == kGlass ? x + 0.15 * cell * (any(random) - 0.5)
                                              : x);
        }
    const double all = static_cast<double>(count());
    const double radius = std::cbrt((neighbours + 0.5) / all * 3 / 4 / 3.14159265358979);
    for (size_t i = 0; i < count(); ++i) {
      list_.emplace_back();
      for (size_t j = 0; j < count(); ++j)
        if (j != i && distance_squared(i, j) < radius * radius) list_[i].push_back(static_cast<int>(j));
    }
  }

  size_t count() const { return place_.size() / 3; }

  /// Takes entries out of the lists, so that pairs are one-sided.
  void drop_some(double share) {
    std::mt19937_64 random(11);
    for (auto& one : list_) {
      std::vector<int> kept;
      for (int other : one)
        if (std::uniform_real_distribution<double>(0, 1)(random) > share) kept.push_back(other);
      one = kept;
    }
  }

  std::vector<Part> shared_by(int ranks) const {
    const auto rank_of = [&](size_t i) { return static_cast<int>(place_[3 * i] * ranks) % ranks; };
    std::vector<Part> parts(static_cast<size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      Part& part = parts[static_cast<size_t>(rank)];
      std::map<int, int> index;
      for (size_t i = 0; i < count(); ++i)
        if (rank_of(i) == rank) {
          index[static_cast<int>(i)] = static_cast<int>(part.id.size());
          part.id.push_back(static_cast<int64_t>(i));
        }
      part.local = static_cast<int64_t>(part.id.size());
      part.offset.push_back(0);
      for (int64_t i = 0; i < part.local; ++i) {
        for (int other : list_[static_cast<size_t>(part.id[static_cast<size_t>(i)])]) {
          const auto [at, is_new] = index.insert({other, static_cast<int>(part.id.size())});
          if (is_new) {
            part.id.push_back(other);
            part.owner.push_back(rank_of(static_cast<size_t>(other)));
          }
          part.neighbour.push_back(at->second);
        }
        part.offset.push_back(static_cast<int64_t>(part.neighbour.size()));
      }
      part.total = static_cast<int64_t>(part.id.size());
    }
    return parts;
  }

 private:
  double distance_squared(size_t i, size_t j) const {
    double sum = 0;
    for (size_t k = 0; k < 3; ++k) {
      double d = std::fabs(place_[3 * i + k] - place_[3 * j + k]);
      if (d > 0.5) d = 1 - d;
      sum += d * d;
    }
    return sum;
  }

  std::vector<double> place_;
  std::vector<std::vector<int>> list_;
};
