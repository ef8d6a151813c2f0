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

/* From the kept state: a selection, then two steps. The flip comes in the first one. */
static void two_steps(int with_flip, long when) {
  for (int i = 0; i < kept_count; i++) memcpy(kept[i].array, kept[i].copy, kept[i].bytes);
  local = kept_local;
  total = kept_total;
  dt = kept_dt;
  choose();
  phase_begin(BIT(X) | BIT(M) | BIT(V) | BIT(W) | BIT(U) | BIT(UP) | BIT(A) | BIT(G) | BIT(DU));
  phase_end(0, NULL);
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

/* What two_steps() begins with: all that is there after a complete evaluation. */
static void keep_state(void) {
  size_t n = (size_t)all;
  three* vectors[] = {x, v, w, a, g};
  double* numbers[] = {m, h, u, up, rho, p, c, du, phi, hn};
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) keep(vectors[i], n * 24);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) keep(numbers[i], n * 8);
  keep(id, n * 8);
  keep(number, n * sizeof *number);
  keep(first, (n + 1) * sizeof *first);
  keep(first64, (n + 1) * sizeof *first64);
  keep(list, (size_t)first[local] * sizeof *list);
  kept_local = local;
  kept_total = total;
  kept_dt = dt;
}

/* 0: masked, 1: insignificant, 2: significant. */
static int kind_of(const double* golden, const double* now) {
  size_t numbers = (size_t)all * kColumns;
  if (memcmp(golden, now, numbers * 8) == 0) return 0;
  for (size_t k = 0; k < numbers; k++)
    if (!(fabs(golden[k] - now[k]) <= 1e-6)) return 2;
  return 1;
}

static int64_t anywhere(int64_t here) {
  int64_t sum = 0;
  OK(MPI_Allreduce(&here, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
  return sum;
}

static void campaign(int of_field, int each, unsigned seed, int quiet) {
  size_t bytes = (size_t)all * kColumns * 8;
  double *golden = (double*)malloc(bytes), *now = (double*)malloc(bytes);
  CHECK(golden && now && of_field >= 0 && of_field < kCampaignFields);
  keep_state();
  int false_alarms = 0, missed = 0, counted[3][2] = {{0}}; /* [masked, insignificant, significant][not found, found] */
  two_steps(0, 0);
  collect_state(golden);
  for (int i = 0; i < quiet; i++) {
    two_steps(0, 0);
    false_alarms += anywhere(found) != 0;
    collect_state(now);
    CHECK(memcmp(golden, now, bytes) == 0);
  }
  random_state = seed * 8ull + (unsigned)of_field;
  for (int i = 0; i < each; i++) {
    flip_of.field = of_field;
    flip_of.rank = (int)any((uint64_t)size);
    flip_of.particle = (int)any(1u << 30);
    flip_of.element = (int)any(3);
    flip_of.bit = (int)any(64);
    long when = (long)any((uint64_t)work_of_step);
    two_steps(1, when);
    int64_t seen = anywhere(found);
    missed += anywhere(flipped) != 1;
    collect_state(now);
    int kind = kind_of(golden, now);
    ++counted[kind][seen != 0];
    if (rank == 0 && kind != 0 && seen == 0)
      printf("undetected: %s, %ssignificant, particle %d element %d bit %d at %.4f of the step\n",
             campaign_names[of_field], kind == 1 ? "in" : "", flip_of.particle % kept_local, flip_of.element,
             flip_of.bit, (double)when / (double)work_of_step);
  }
  if (rank == 0)
    printf(
        "flips %s: masked %d detected %d, insignificant %d detected %d, significant %d detected %d, not made %d\n"
        "undisturbed: %d runs, %d false alarms\n",
        campaign_names[of_field], counted[0][0] + counted[0][1], counted[0][1], counted[1][0] + counted[1][1],
        counted[1][1], counted[2][0] + counted[2][1], counted[2][1], missed, quiet, false_alarms);
}
