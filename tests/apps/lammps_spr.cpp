// SPDX-License-Identifier: Apache-2.0
//
// Particle replication in an unmodified LAMMPS: a fix "resil/spr" in a shared object, which an input script loads
// (lammps_spr.in). Neighbours are those of LAMMPS's own list of the pair style; replicas are computed by that pair
// style's own single(), in the order in which its compute() adds up, so that forces agree to the last bit. With `newton
// off`: else a part of the forces comes from other ranks, summed there.
//
// SPR_FLIP="rank:step:x|v|f:atom:bit" flips one bit after the positions were sent; of f, after the forces are there.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "atom.h"
#include "comm.h"
#include "error.h"
#include "fix.h"
#include "force.h"
#include "modify.h"
#include "neigh_list.h"
#include "pair.h"
#include "resil.h"
#include "update.h"

namespace {

using namespace LAMMPS_NS;

class FixSpr : public Fix {
 public:
  FixSpr(LAMMPS* lammps, int count, char** words) : Fix(lammps, count, words) {
    // The set of this LAMMPS: one partition may be a part of MPI_COMM_WORLD.
    std::vector<int> mine(static_cast<size_t>(comm->nprocs)), theirs(mine.size());
    MPI_Group part, whole;
    MPI_Comm_group(world, &part);
    MPI_Comm_group(MPI_COMM_WORLD, &whole);
    for (int i = 0; i < comm->nprocs; ++i) mine[static_cast<size_t>(i)] = i;
    MPI_Group_translate_ranks(part, comm->nprocs, mine.data(), whole, theirs.data());
    MPI_Group_free(&part);
    MPI_Group_free(&whole);
    set_ = resil_spr_create("lammps", theirs.data(), comm->nprocs);
    scalar_flag = 1;
    extscalar = 1;
    global_freq = 1;
  }
  ~FixSpr() override { resil_spr_destroy(set_); }

  int setmask() override { return FixConst::POST_NEIGHBOR | FixConst::PRE_FORCE | FixConst::POST_FORCE; }

  void init() override {
    if (force->newton_pair) error->all(FLERR, std::string("fix resil/spr needs newton off"));
    if (force->pair == nullptr || !force->pair->single_enable)
      error->all(FLERR, std::string("fix resil/spr needs a pair style with single()"));
    is_new_ = true;
  }
  void setup_pre_force(int flags) override {
    is_new_ = true;
    pre_force(flags);
  }
  void setup(int flags) override { post_force(flags); }
  void post_neighbor() override { is_new_ = true; }

  void pre_force(int) override {
    total_ = atom->nlocal + atom->nghost;
    f_x_ = resil_spr_field(set_, "x", atom->x[0], 24, 24, RESIL_SPR_DOUBLE);
    f_v_ = resil_spr_field(set_, "v", atom->v[0], 24, 24, RESIL_SPR_DOUBLE);
    f_type_ = resil_spr_field(set_, "type", atom->type, 4, 4, 0);
    f_f_ = resil_spr_field(set_, "f", atom->f[0], 24, 24, RESIL_SPR_DOUBLE);
    resil_spr_field(set_, "tag", atom->tag, sizeof(tagint), sizeof(tagint), RESIL_SPR_ID);
    uint64_t fields = RESIL_SPR_BIT(f_x_) | RESIL_SPR_BIT(f_v_);
    if (set_ >= 0 && is_new_) {
      make_lists();
      resil_spr_select(set_, atom->nlocal, total_, offset_.data(), nullptr, neighbour_.data(), 0, nullptr);
      fields |= RESIL_SPR_BIT(f_type_);
      is_new_ = false;
    }
    resil_spr_begin(set_, update->ntimestep, atom->nlocal, total_, fields);
    flip("x", atom->x[0], 3 * atom->nlocal);
    flip("v", atom->v[0], 3 * atom->nlocal);
  }

  void post_force(int) override {
    flip("f", atom->f[0], 3 * atom->nlocal);
    const int64_t found = resil_spr_end(set_, RESIL_SPR_BIT(f_f_), replicas, this, RESIL_POLICY_DEFAULT);
    if (found > 0) found_ += static_cast<double>(found);
  }

  double compute_scalar() override {
    double all = 0;
    MPI_Allreduce(&found_, &all, 1, MPI_DOUBLE, MPI_SUM, world);
    return all;
  }

 private:
  /// LAMMPS adds a pair's force to both atoms when it meets the pair. So what an atom's force is summed from, and in
  /// which order: its partners, by the order of the pairs.
  void make_lists() {
    const NeighList* const list = force->pair->list;
    const auto local = static_cast<size_t>(atom->nlocal);
    const auto pairs = [&](auto each) {
      for (int ii = 0; ii < list->inum; ++ii) {
        const int i = list->ilist[ii];
        for (int jj = 0; jj < list->numneigh[i]; ++jj) {
          const int j = list->firstneigh[i][jj] & NEIGHMASK;
          each(i, j);
          if (j < atom->nlocal) each(j, i);
        }
      }
    };
    offset_.assign(local + 1, 0);
    pairs([&](int i, int) { ++offset_[static_cast<size_t>(i) + 1]; });
    for (size_t i = 0; i < local; ++i) offset_[i + 1] += offset_[i];
    neighbour_.resize(static_cast<size_t>(offset_[local]) + 1);
    std::vector<int64_t> at(offset_.begin(), offset_.end() - 1);
    pairs([&](int i, int j) { neighbour_[static_cast<size_t>(at[static_cast<size_t>(i)]++)] = j; });
  }

  static int replicas(void* argument, const resil_spr_replicas* of) {
    auto* self = static_cast<FixSpr*>(argument);
    Pair* const pair = self->force->pair;
    const auto* x = static_cast<const double(*)[3]>(of->field[self->f_x_]);
    const auto* type = static_cast<const int*>(of->field[self->f_type_]);
    auto* f = static_cast<double(*)[3]>(of->field[self->f_f_]);
    for (int i = 0; i < of->count; ++i) {
      double sum[3] = {0, 0, 0}, strength;
      for (int k = of->offset[i]; k < of->offset[i + 1]; ++k) {
        const int j = of->neighbour[k];
        const double dx = x[i][0] - x[j][0], dy = x[i][1] - x[j][1], dz = x[i][2] - x[j][2];
        const double rsq = dx * dx + dy * dy + dz * dz;
        if (!(rsq < pair->cutsq[type[i]][type[j]])) continue;
        pair->single(i, j, type[i], type[j], rsq, 1.0, 1.0, strength);
        sum[0] += dx * strength;
        sum[1] += dy * strength;
        sum[2] += dz * strength;
      }
      memcpy(f[i], sum, sizeof sum);
    }
    return 0;
  }

  void flip(const char* what, double* numbers, int count) {
    int rank, step, number, bit;
    char field[8];
    const char* const wanted = getenv("SPR_FLIP");
    if (wanted == nullptr || sscanf(wanted, "%d:%d:%7[a-z]:%d:%d", &rank, &step, field, &number, &bit) != 5) return;
    if (rank != comm->me || step != update->ntimestep || strcmp(field, what) != 0) return;
    uint64_t bits;
    memcpy(&bits, &numbers[number % count], 8);
    bits ^= uint64_t{1} << bit;
    memcpy(&numbers[number % count], &bits, 8);
  }

  int set_, f_x_ = -1, f_v_ = -1, f_type_ = -1, f_f_ = -1, total_ = 0;
  bool is_new_ = true;
  double found_ = 0;
  std::vector<int64_t> offset_;
  std::vector<int> neighbour_;
};

Fix* make(LAMMPS* lammps, int count, char** words) { return new FixSpr(lammps, count, words); }

struct Registry : Pointers {
  explicit Registry(LAMMPS* lammps) : Pointers(lammps) { (*modify->fix_map)["resil/spr"] = make; }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void register_fix(void* lammps) {
  Registry registry(static_cast<LAMMPS*>(lammps));
}
