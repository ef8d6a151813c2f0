// SPDX-License-Identifier: Apache-2.0
//
// Bits flipped in sph.c by the method of Cavelan et al.: the same two steps again and again; in the first one, at a
// random time, one bit of one field of one particle, every particle equally likely. After the second one all particles
// are compared with those of undisturbed steps: masked (all bits equal), significant (some number differs by more than
// 1e-6), or neither. Included by sph.c.

enum { kCampaignFields = 5, kColumns = 9 };
static const char* const campaign_names[kCampaignFields] = {"position", "mass", "energy", "velocity", "density"};

static struct { int field, rank, particle, element, bit; } flip_of;
static int flipped;

static void flip_now(void) {
  armed = 0;
  if (flip_of.rank != rank) return;
  int at = flip_of.particle % local;
  double* to = flip_of.field == 0   ? &x[at][flip_of.element]
               : flip_of.field == 1 ? &m[at]
               : flip_of.field == 2 ? &u[at]
               : flip_of.field == 3 ? &v[at][flip_of.element]
                                    : &rho[at];
  uint64_t bits;
  memcpy(&bits, to, 8);
  bits ^= (uint64_t)1 << flip_of.bit;
  memcpy(to, &bits, 8);
  flipped = 1;
}

/* x, v, m, u, rho of all particles, in the order of their ids. */
static void collect_state(double* to) {
  gather();
  for (int i = 0; i < all; i++) {
    double* at = to + (size_t)kColumns * (size_t)every[i].id;
    memcpy(at, every[i].x, 24);
    memcpy(at + 3, every[i].v, 24);
    at[6] = every[i].m;
    at[7] = every[i].u;
    at[8] = every[i].rho;
  }
}

static struct {
  void* array;
  size_t bytes;
  void* copy;
} kept[24];
static int kept_count, kept_local, kept_total;
static double kept_dt;
static void keep(void* array, size_t bytes) {
  kept[kept_count].array = array;
  kept[kept_count].bytes = bytes;
  CHECK((kept[kept_count].copy = malloc(bytes)) != NULL);
  memcpy(kept[kept_count++].copy, array, bytes);
}

static long work_of_step;

/* From the kept state: its forces, then two steps. The flip comes in the first one. */
static void two_steps(int with_flip, long when) {
  for (int i = 0; i < kept_count; i++) memcpy(kept[i].array, kept[i].copy, kept[i].bytes);
  local = kept_local;
  dt = kept_dt;
  with_lists = 0;
  evaluate();
  found = 0;
  flipped = 0;
  work_left = with_flip ? when : 1l << 60;
  armed = 1;
  step();
  if (!with_flip) work_of_step = (1l << 60) - work_left;
  armed = 0;
  step();
}

static uint64_t random_state;
static uint64_t any(uint64_t below) {
  random_state += 0x9e3779b97f4a7c15ull;
  uint64_t z = random_state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (z ^ (z >> 31)) % below;
}

static void campaign(int each, unsigned seed) {
  double *golden = (double*)malloc((size_t)all * kColumns * 8), *now = (double*)malloc((size_t)all * kColumns * 8);
  keep(x, (size_t)all * 24), keep(v, (size_t)all * 24), keep(w, (size_t)all * 24), keep(m, (size_t)all * 8);
  keep(h, (size_t)all * 8), keep(u, (size_t)all * 8), keep(up, (size_t)all * 8), keep(id, (size_t)all * 8);
  kept_local = local;
  kept_total = total;
  kept_dt = dt;
  int false_alarms = 0;
  for (int i = 0; i < 3; i++) {
    two_steps(0, 0);
    int64_t anywhere = 0;
    OK(MPI_Allreduce(&found, &anywhere, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    false_alarms += anywhere != 0;
    collect_state(i == 0 ? golden : now);
    if (i > 0) CHECK(memcmp(golden, now, (size_t)all * kColumns * 8) == 0);
  }
  random_state = seed;
  for (int f = 0; f < kCampaignFields; f++) {
    /* [masked, insignificant, significant][not detected, detected] */
    int counted[3][2] = {{0}}, missed = 0;
    for (int i = 0; i < each; i++) {
      flip_of.field = f;
      flip_of.rank = (int)any((uint64_t)size);
      flip_of.particle = (int)any(1u << 30);
      flip_of.element = (int)any(3);
      flip_of.bit = (int)any(64);
      two_steps(1, (long)any((uint64_t)work_of_step));
      int64_t anywhere[2] = {found, flipped}, sum[2];
      OK(MPI_Allreduce(anywhere, sum, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
      missed += sum[1] != 1;
      collect_state(now);
      int kind = memcmp(golden, now, (size_t)all * kColumns * 8) != 0;
      for (size_t k = 0; kind == 1 && k < (size_t)all * kColumns; k++)
        if (!(fabs(golden[k] - now[k]) <= 1e-6)) kind = 2;
      ++counted[kind][sum[0] != 0];
      if (rank == 0 && kind == 2 && sum[0] == 0)
        printf("undetected: %s particle %d element %d bit %d\n", campaign_names[f], flip_of.particle, flip_of.element,
               flip_of.bit);
    }
    if (rank == 0) {
      printf("flips %s: masked %d detected %d, insignificant %d detected %d, significant %d detected %d, not made %d\n",
             campaign_names[f], counted[0][0] + counted[0][1], counted[0][1], counted[1][0] + counted[1][1],
             counted[1][1], counted[2][0] + counted[2][1], counted[2][1], missed);
      fflush(stdout);
    }
  }
  if (rank == 0) printf("undisturbed: 3 runs, %d false alarms\n", false_alarms);
}
