// SPDX-License-Identifier: Apache-2.0
//
// Smoothed particle hydrodynamics with replicas of some particles (resil_spr_...): octree for neighbours and gravity,
// cubic spline kernel, artificial viscosity, kick-drift-kick, particles shared among the ranks along a Morton curve.
// Two known problems: the collapse of a cold gas sphere (Evrard 1988) and a supersonic wind on a dense bubble (Agertz
// et al. 2007).
//
// Usage: sph evrard|wind PARTICLES STEPS             prints energies, and the state's fingerprint
//        sph evrard|wind PARTICLES flips FIELD COUNT SEED QUIET  COUNT bits flipped in this field (0 to 4) and QUIET
//                                                   undisturbed runs, see sph_campaign.h
#include <math.h>
#include <mpi.h>
#include <resil.h>
#include <stdlib.h>

#include "check.h"

#define NEIGHBOURS 100
#define GAMMA (5.0 / 3.0)
#define KERNEL __attribute__((noinline))

typedef double three[3];

/* This rank's particles, then copies of others' that stand in their lists. */
static int all, local, total, rank, size;
static int64_t* id;
static three *x, *v, *w, *a, *g;  // w: velocity at the end of the step, predicted
static double *m, *h, *u, *up, *rho, *p, *c, *du, *phi, *hn;
static int *first, *list, list_room;
static int64_t* first64;
static double dt, box[3];  // 0: no period
static int gravity_on, step_number;

/* What all ranks have of all particles, along the curve; the tree is made of it. */
struct gathered {
  double x[3], v[3], w[3], m, h, u, up, rho, p, c, id, key;
};
static struct gathered* every;
static int* number;  // of a particle of `every` here, or -1
struct node {
  double low[3], high[3], centre[3], mass, h;
  int begin, end, child[8], children;
};
static struct node* nodes;
static int node_count;

/* One flip, at a time that is counted in work of this rank's own kernels: hundreds of instructions a particle, as
 * callgrind counts them (4,000 particles). */
static long work_left;
static int armed, own_kernel;
static void flip_now(void);
static inline void worked(int amount) {
  if (armed && own_kernel && (work_left -= amount) <= 0) flip_now();
}

static void apart(const double* i, const double* j, double* d) {
  for (int k = 0; k < 3; k++) {
    d[k] = i[k] - j[k];
    if (box[k] > 0) d[k] -= box[k] * rint(d[k] / box[k]);
  }
}

static double spline(double q) {
  return q < 1 ? 1 - 1.5 * q * q + 0.75 * q * q * q : q < 2 ? 0.25 * (2 - q) * (2 - q) * (2 - q) : 0;
}
static double slope(double q) { return q < 1 ? -3 * q + 2.25 * q * q : q < 2 ? -0.75 * (2 - q) * (2 - q) : 0; }

/* Kernels: for particles `begin` to `end` - 1, and for replicas alike. */

KERNEL static void density(int begin, int end, const int* from, const int* with, const three* x, const double* m,
                           const double* h, double* rho, double* hn) {
  for (int i = begin; i < end; i++) {
    double sum = m[i], d[3];
    int near = 1;
    for (int k = from[i]; k < from[i + 1]; k++) {
      int j = with[k];
      apart(x[i], x[j], d);
      double q = sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]) / h[i];
      sum += m[j] * spline(q);
      near += q < 2;
    }
    rho[i] = sum / (M_PI * h[i] * h[i] * h[i]);
    hn[i] = h[i] * 0.5 * (1 + cbrt((double)NEIGHBOURS / near));
    worked(95);
  }
}

KERNEL static void state(int begin, int end, const double* rho, const double* up, double* p, double* c) {
  for (int i = begin; i < end; i++) {
    p[i] = (GAMMA - 1) * rho[i] * up[i];
    c[i] = sqrt(GAMMA * (GAMMA - 1) * up[i]);
    worked(1);
  }
}

KERNEL static void forces(int begin, int end, const int* from, const int* with, const three* x, const three* w,
                          const double* m, const double* h, const double* rho, const double* p, const double* c,
                          three* a, double* du) {
  for (int i = begin; i < end; i++) {
    double sum[3] = {0, 0, 0}, heat = 0, d[3];
    for (int k = from[i]; k < from[i + 1]; k++) {
      int j = with[k];
      apart(x[i], x[j], d);
      double r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2], r = sqrt(r2), hi = h[i], hj = h[j];
      if (r <= 0) continue;
      double hi5 = hi * hi * hi * hi, hj5 = hj * hj * hj * hj;
      double gradient = 0.5 * (slope(r / hi) / hi5 + slope(r / hj) / hj5) / (M_PI * r);
      double vr = d[0] * (w[i][0] - w[j][0]) + d[1] * (w[i][1] - w[j][1]) + d[2] * (w[i][2] - w[j][2]), viscosity = 0;
      if (vr < 0) {
        double hm = 0.5 * (hi + hj), mu = hm * vr / (r2 + 0.01 * hm * hm);
        viscosity = (-0.5 * (c[i] + c[j]) * mu + 2 * mu * mu) / (0.5 * (rho[i] + rho[j]));
      }
      double pi = p[i] / (rho[i] * rho[i]), both = m[j] * (pi + p[j] / (rho[j] * rho[j]) + viscosity) * gradient;
      for (int n = 0; n < 3; n++) sum[n] -= both * d[n];
      heat += m[j] * (pi + 0.5 * viscosity) * gradient * vr;
    }
    for (int n = 0; n < 3; n++) a[i][n] = sum[n];
    du[i] = heat;
    worked(218);
  }
}

static void pull(const struct node* node, const double* at, double* sum, double* potential) {
  double d[3], r2 = 0, extent = 0;
  for (int k = 0; k < 3; k++) {
    d[k] = node->centre[k] - at[k];
    r2 += d[k] * d[k];
    extent = fmax(extent, node->high[k] - node->low[k]);
  }
  if (node->children && !(extent * extent < 0.25 * r2)) {
    for (int k = 0; k < node->children; k++) pull(&nodes[node->child[k]], at, sum, potential);
    return;
  }
  int by_parts = !node->children && !(extent * extent < 0.25 * r2);
  for (int j = by_parts ? node->begin : 0; j < (by_parts ? node->end : 1); j++) {
    double mass = by_parts ? every[j].m : node->mass;
    if (by_parts) {
      r2 = 0;
      for (int k = 0; k < 3; k++) d[k] = every[j].x[k] - at[k], r2 += d[k] * d[k];
    }
    if (r2 == 0) continue;
    double near = 1 / sqrt(r2 + 1e-4), pull = mass * near * near * near;
    for (int k = 0; k < 3; k++) sum[k] += pull * d[k];
    *potential -= mass * near;
  }
}

KERNEL static void gravity(int begin, int end, const three* x, three* g, double* phi) {
  for (int i = begin; i < end; i++) {
    g[i][0] = g[i][1] = g[i][2] = phi[i] = 0;
    pull(nodes, x[i], g[i], &phi[i]);
    worked(646);
  }
}

KERNEL static void drift(int begin, int end, three* x, three* v, three* w, double* u, double* up, const three* a,
                         const three* g, const double* du) {
  for (int i = begin; i < end; i++) {
    for (int k = 0; k < 3; k++) {
      v[i][k] += 0.5 * dt * (a[i][k] + g[i][k]);
      x[i][k] += dt * v[i][k];
      if (box[k] > 0) x[i][k] -= box[k] * floor(x[i][k] / box[k]);
      w[i][k] = v[i][k] + 0.5 * dt * (a[i][k] + g[i][k]);
    }
    u[i] += 0.5 * dt * du[i];
    up[i] = fmax(u[i] + 0.5 * dt * du[i], 1e-9);
    worked(1);
  }
}

KERNEL static void kick(int begin, int end, three* v, double* u, const three* a, const three* g, const double* du) {
  for (int i = begin; i < end; i++) {
    for (int k = 0; k < 3; k++) v[i][k] += 0.5 * dt * (a[i][k] + g[i][k]);
    u[i] += 0.5 * dt * du[i];
    worked(1);
  }
}

/* The same kernels on what resil has of the rank before. */

static int set;
enum { X, V, W, M, H, U, UP, RHO, P, C, A, G, DU, PHI, HN, FIELDS };
static int field[FIELDS];
#define BIT(f) RESIL_SPR_BIT(field[f])
#define AS3(f) ((three*)r->field[field[f]])
#define AS1(f) ((double*)r->field[field[f]])

static int density_r(void* unused, const struct resil_spr_replicas* r) {
  (void)unused;
  density(0, r->count, r->offset, r->neighbour, AS3(X), AS1(M), AS1(H), AS1(RHO), AS1(HN));
  state(0, r->count, AS1(RHO), AS1(UP), AS1(P), AS1(C));
  return 0;
}
static int forces_r(void* unused, const struct resil_spr_replicas* r) {
  (void)unused;
  forces(0, r->count, r->offset, r->neighbour, AS3(X), AS3(W), AS1(M), AS1(H), AS1(RHO), AS1(P), AS1(C), AS3(A),
         AS1(DU));
  return 0;
}
static int gravity_r(void* unused, const struct resil_spr_replicas* r) {
  (void)unused;
  gravity(0, r->count, AS3(X), AS3(G), AS1(PHI));
  return 0;
}
static int drift_r(void* unused, const struct resil_spr_replicas* r) {
  (void)unused;
  drift(0, r->count, AS3(X), AS3(V), AS3(W), AS1(U), AS1(UP), AS3(A), AS3(G), AS1(DU));
  return 0;
}
static int kick_r(void* unused, const struct resil_spr_replicas* r) {
  (void)unused;
  kick(0, r->count, AS3(V), AS1(U), AS3(A), AS3(G), AS1(DU));
  return 0;
}

static int64_t found;
static int phased, with_lists;

/* This rank's kernel on blocks of its particles, whose results are kept as they are from then on. */
enum { kBlock = 8 };
#define IN_BLOCKS(results, call)                               \
  for (int at = 0, to; at < local; at = to) {                  \
    to = at + kBlock < local ? at + kBlock : local;            \
    call;                                                      \
    if (phased) resil_spr_computed(set, results, at, to - at); \
  }

static void phase_begin(uint64_t fields) {
  if (with_lists) resil_spr_begin(set, step_number, local, total, fields), phased = 1;
  own_kernel = 1;
}
static void phase_end(uint64_t results, resil_spr_kernel kernel) {
  own_kernel = 0;
  if (phased) found += resil_spr_end(set, results, kernel, NULL, RESIL_POLICY_CONTINUE);
  phased = 0;
}

/* Tree and lists. */

static double key_of(const double* at, const double* low, double side) {
  uint64_t key = 0;
  for (int k = 0; k < 3; k++) {
    double place = (at[k] - low[k]) / side * 65535;
    uint64_t cell = place > 0 ? place < 65535 ? (uint64_t)place : 65535 : 0;
    for (int bit = 0; bit < 16; bit++) key |= (cell >> bit & 1) << (3 * bit + k);
  }
  return (double)key;  // 48 bits
}

static int by_key(const void* one, const void* other) {
  const struct gathered *i = (const struct gathered*)one, *j = (const struct gathered*)other;
  return i->key < j->key ? -1 : i->key > j->key ? 1 : i->id < j->id ? -1 : 1;
}

static int make_node(int begin, int end, int level) {
  int self = node_count++;
  struct node* node = &nodes[self];
  memset(node, 0, sizeof *node);
  node->begin = begin;
  node->end = end;
  for (int k = 0; k < 3; k++) node->low[k] = 1e300, node->high[k] = -1e300;
  for (int i = begin; i < end; i++) {
    node->mass += every[i].m;
    node->h = fmax(node->h, every[i].h);
    for (int k = 0; k < 3; k++) {
      node->centre[k] += every[i].m * every[i].x[k];
      node->low[k] = fmin(node->low[k], every[i].x[k]);
      node->high[k] = fmax(node->high[k], every[i].x[k]);
    }
  }
  for (int k = 0; k < 3; k++) node->centre[k] /= node->mass;
  if (end - begin <= 8 || level < 0) return self;
  for (int i = begin, octant = 0; octant < 8 && i < end; octant++) {
    int to = i;
    while (to < end && (int)((uint64_t)every[to].key >> (3 * level) & 7) == octant) to++;
    if (to == i) continue;
    int child = make_node(i, to, level - 1);
    node->child[node->children++] = child;
    i = to;
  }
  return self;
}

static int listed;
static void search(const struct node* node, const double* at, double reach, int self) {
  double limit = 2 * fmax(reach, node->h), far = 0;
  for (int k = 0; k < 3; k++) {
    double out = fmax(fmax(node->low[k] - at[k], at[k] - node->high[k]), 0);
    far += out * out;
  }
  if (!(far < limit * limit)) return;
  if (node->children) {
    for (int k = 0; k < node->children; k++) search(&nodes[node->child[k]], at, reach, self);
    return;
  }
  for (int j = node->begin; j < node->end; j++) {
    double d2 = 0, most = 2 * fmax(reach, every[j].h);
    for (int k = 0; k < 3; k++) d2 += (every[j].x[k] - at[k]) * (every[j].x[k] - at[k]);
    if (j == self || !(d2 < most * most)) continue;
    if (listed == list_room) CHECK((list = (int*)realloc(list, (size_t)(list_room *= 2) * sizeof *list)) != NULL);
    list[listed++] = j;
  }
}

static void find_neighbours(int begin) {
  listed = 0;
  resil_spr_begin(set, step_number, local, -1, BIT(X) | BIT(M) | BIT(H) | BIT(W) | BIT(V) | BIT(U) | BIT(UP));
  own_kernel = 1;
  for (int i = 0; i < local; i++) {
    first[i] = listed;
    const struct gathered* self = &every[begin + i];
    if (box[0] <= 0) search(nodes, self->x, self->h, begin + i);
    else
      for (int image = 0; image < 27; image++) {
        double at[3];
        for (int k = 0, n = image; k < 3; k++, n /= 3) at[k] = self->x[k] + (n % 3 - 1) * box[k];
        search(nodes, at, self->h, begin + i);
      }
    worked(445);
  }
  own_kernel = 0;
  found += resil_spr_end(set, 0, NULL, NULL, RESIL_POLICY_CONTINUE);
  first[local] = listed;
  for (int i = 0; i < all; i++) number[i] = i >= begin && i < begin + local ? i - begin : -1;
  total = local;
  for (int k = 0; k < listed; k++) {
    if (number[list[k]] < 0) {
      const struct gathered* from = &every[list[k]];
      memcpy(x[total], from->x, 24);
      memcpy(w[total], from->w, 24);
      m[total] = from->m;
      h[total] = from->h;
      id[total] = (int64_t)from->id;
      number[list[k]] = total++;
    }
    list[k] = number[list[k]];
  }
  for (int i = 0; i <= local; i++) first64[i] = first[i];
}

static MPI_Datatype gathered_type;
static int *counts, *starts;

static void gather(void) {
  static struct gathered* own;
  if (!own) own = (struct gathered*)calloc((size_t)all, sizeof *own);
  for (int i = 0; i < local; i++) {
    struct gathered* to = &own[i];
    memcpy(to->x, x[i], 24), memcpy(to->v, v[i], 24), memcpy(to->w, w[i], 24);
    to->m = m[i], to->h = h[i], to->u = u[i], to->up = up[i], to->rho = rho[i], to->p = p[i], to->c = c[i];
    to->id = (double)id[i];
  }
  OK(MPI_Allgather(&local, 1, MPI_INT, counts, 1, MPI_INT, MPI_COMM_WORLD));
  for (int i = 0, at = 0; i < size; at += counts[i++]) starts[i] = at;
  OK(MPI_Allgatherv(own, local, gathered_type, every, counts, starts, gathered_type, MPI_COMM_WORLD));
}

/* Shares the particles anew along the curve, and finds their neighbours. */
static void share(void) {
  double low[3] = {1e300, 1e300, 1e300}, side = 0;
  gather();
  for (int k = 0; k < 3; k++) {
    double high = -1e300;
    for (int i = 0; i < all; i++) low[k] = fmin(low[k], every[i].x[k]), high = fmax(high, every[i].x[k]);
    side = fmax(side, high - low[k]);
  }
  for (int i = 0; i < all; i++) every[i].key = key_of(every[i].x, low, side);
  qsort(every, (size_t)all, sizeof *every, by_key);
  int begin = (int)((int64_t)all * rank / size);
  local = (int)((int64_t)all * (rank + 1) / size) - begin;
  for (int i = 0; i < local; i++) {
    const struct gathered* from = &every[begin + i];
    memcpy(x[i], from->x, 24), memcpy(v[i], from->v, 24), memcpy(w[i], from->w, 24);
    m[i] = from->m, h[i] = from->h, u[i] = from->u, up[i] = from->up, id[i] = (int64_t)from->id;
  }
  node_count = 0;
  make_node(0, all, 15);
  find_neighbours(begin);
}

/* Density, pressure and velocity of sound of the copies. */
static void update_copies(void) {
  static double *own, *others;
  if (!own) own = (double*)malloc((size_t)all * 24), others = (double*)malloc((size_t)all * 24);
  for (int i = 0; i < local; i++) own[3 * i] = rho[i], own[3 * i + 1] = p[i], own[3 * i + 2] = c[i];
  for (int i = 0; i < size; i++) {
    starts[i] = 3 * (int)((int64_t)all * i / size);
    counts[i] = 3 * (int)((int64_t)all * (i + 1) / size) - starts[i];
  }
  OK(MPI_Allgatherv(own, 3 * local, MPI_DOUBLE, others, counts, starts, MPI_DOUBLE, MPI_COMM_WORLD));
  for (int i = 0; i < all; i++) {
    int at = number[i];
    if (at >= local) rho[at] = others[3 * i], p[at] = others[3 * i + 1], c[at] = others[3 * i + 2];
  }
}

static void choose(void) {
  int owner_room = total - local, *owner = (int*)malloc((size_t)(owner_room + 1) * sizeof *owner);
  for (int i = 0; i < all; i++)
    if (number[i] >= local) {
      int of = (int)((int64_t)i * size / all);
      while ((int64_t)all * (of + 1) / size <= i) of++;
      while ((int64_t)all * of / size > i) of--;
      owner[number[i] - local] = of;
    }
  resil_spr_select(set, local, total, first64, NULL, list, 0, owner);
  with_lists = 1;
  free(owner);
}

static void evaluate(void) {
  share();
  choose();
  phase_begin(BIT(X) | BIT(M) | BIT(H) | BIT(W) | BIT(V) | BIT(U) | BIT(UP));
  IN_BLOCKS(BIT(RHO) | BIT(HN) | BIT(P) | BIT(C), {
    density(at, to, first, list, x, m, h, rho, hn);
    state(at, to, rho, up, p, c);
  });
  phase_end(BIT(RHO) | BIT(HN) | BIT(P) | BIT(C), density_r);
  update_copies();
  phase_begin(BIT(RHO) | BIT(P) | BIT(C));
  IN_BLOCKS(BIT(A) | BIT(DU), forces(at, to, first, list, x, w, m, h, rho, p, c, a, du));
  phase_end(BIT(A) | BIT(DU), forces_r);
  if (!gravity_on) return;
  phase_begin(0);
  IN_BLOCKS(BIT(G) | BIT(PHI), gravity(at, to, x, g, phi));
  phase_end(BIT(G) | BIT(PHI), gravity_r);
}

static void find_dt(void) {
  double least = 0.05;
  for (int i = 0; i < local; i++) {
    double strong = sqrt(a[i][0] * a[i][0] + a[i][1] * a[i][1] + a[i][2] * a[i][2]) + 1;
    least = fmin(least, fmin(0.2 * h[i] / (c[i] + 0.1), 0.2 * sqrt(h[i] / strong)));
  }
  OK(MPI_Allreduce(&least, &dt, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD));
  dt = fmax(dt, 1e-6);
}

static void step(void) {
  ++step_number;
  phase_begin(0);
  IN_BLOCKS(BIT(X) | BIT(V) | BIT(W) | BIT(U) | BIT(UP), drift(at, to, x, v, w, u, up, a, g, du));
  phase_end(BIT(X) | BIT(V) | BIT(W) | BIT(U) | BIT(UP), drift_r);
  memcpy(h, hn, (size_t)local * sizeof *h);  // here: no comparison comes before the next selection
  evaluate();
  phase_begin(0);
  IN_BLOCKS(BIT(V) | BIT(U), kick(at, to, v, u, a, g, du));
  phase_end(BIT(V) | BIT(U), kick_r);
  find_dt();
}

/* Initial conditions: all on rank 0, shared by the first evaluation. */

static void put(double px, double py, double pz, double vx, double heat, double number_density) {
  if (rank == 0) {
    three at = {px, py, pz};
    memcpy(x[local], at, 24);
    v[local][0] = w[local][0] = vx;
    v[local][1] = v[local][2] = w[local][1] = w[local][2] = 0;
    u[local] = up[local] = heat;
    h[local] = 0.5 * cbrt(3 * NEIGHBOURS / (4 * M_PI * number_density));
    id[local] = local;
    ++local;
  }
  ++all;
}

static void evrard(int wanted, int only_count) {
  int side = (int)ceil(cbrt(wanted * 6 / M_PI));
  for (int i = 0; i < side * side * side; i++) {
    double q[3] = {i / side / side, i / side % side, i % side}, r = 0;
    for (int k = 0; k < 3; k++) q[k] = (2 * q[k] + 1) / side - 1, r += q[k] * q[k];
    r = sqrt(r);
    if (r > 1) continue;
    if (only_count) all++;
    else
      put(q[0] * sqrt(r), q[1] * sqrt(r), q[2] * sqrt(r), 0, 0.05, (double)wanted / (2 * M_PI * (pow(r, 1.5) + 0.02)));
  }
}

static void wind(int wanted, int only_count) {
  int side = (int)ceil(cbrt(wanted / 5.2));
  double gap = 0.25 / side, dense = 0.25 / ceil(side * cbrt(10)), far = 0.08;
  for (int inside = 0; inside < 2; inside++) {
    double d = inside ? dense : gap;
    for (double px = d / 2; px < 1; px += d)
      for (double py = d / 2; py < 0.25; py += d)
        for (double pz = d / 2; pz < 0.25; pz += d) {
          double r2 = (px - 0.3) * (px - 0.3) + (py - 0.125) * (py - 0.125) + (pz - 0.125) * (pz - 0.125);
          if ((r2 < far * far) != inside) continue;
          if (only_count) all++;
          else put(px, py, pz, inside ? 0 : 2.7 * sqrt(GAMMA), 1.5 / (inside ? 10 : 1), 1 / (d * d * d));
        }
  }
}

static void prepare(const char* problem, int wanted) {
  void (*fill)(int, int) = strcmp(problem, "wind") == 0 ? wind : evrard;
  fill(wanted, 1);
  size_t n = (size_t)all + 1;
  struct {
    void* array;
    const char* name;
    size_t bytes;
    int flags;
  } arrays[] = {{&x, "x", 24, 1},  {&v, "v", 24, 1},    {&w, "w", 24, 1},  {&m, "m", 8, 1},
                {&h, "h", 8, 1},   {&u, "u", 8, 1},     {&up, "up", 8, 1}, {&rho, "rho", 8, 1},
                {&p, "p", 8, 1},   {&c, "c", 8, 1},     {&a, "a", 24, 1},  {&g, "g", 24, 1},
                {&du, "du", 8, 1}, {&phi, "phi", 8, 1}, {&hn, "hn", 8, 1}, {&id, "id", 8, RESIL_SPR_ID}};
  set = resil_spr_create("gas", NULL, 0);
  for (int i = 0; i <= FIELDS; i++) {
    void* made = calloc(n, arrays[i].bytes);
    CHECK(made != NULL);
    memcpy(arrays[i].array, &made, sizeof made);
    int of = resil_spr_field(set, arrays[i].name, made, arrays[i].bytes, arrays[i].bytes, arrays[i].flags);
    if (i < FIELDS) field[i] = of;
  }
  every = (struct gathered*)calloc(n, sizeof *every);
  number = (int*)calloc(n, sizeof *number);
  nodes = (struct node*)calloc(n * 18, sizeof *nodes);
  first = (int*)calloc(n, sizeof *first);
  first64 = (int64_t*)calloc(n, sizeof *first64);
  list = (int*)calloc(list_room = 256 * all, sizeof *list);
  counts = (int*)calloc((size_t)size, sizeof *counts);
  starts = (int*)calloc((size_t)size, sizeof *starts);
  OK(MPI_Type_contiguous(sizeof(struct gathered) / 8, MPI_DOUBLE, &gathered_type));
  OK(MPI_Type_commit(&gathered_type));
  int expected = all;
  all = local = 0;
  fill(wanted, 0);
  CHECK(all == expected);
  gravity_on = fill == evrard;
  if (!gravity_on) box[0] = 1, box[1] = box[2] = 0.25;
  double mass = gravity_on ? 1.0 / all : pow(0.25 / ceil(cbrt(wanted / 5.2)), 3);
  for (int i = 0; i < local; i++) m[i] = mass;
}

/* Mass, momentum along x, kinetic, internal and potential energy, mean acceleration by gravity, least density. */
static void totals(double* sum) {
  double own[7] = {0};
  for (int i = 0; i < local; i++) {
    own[0] += m[i];
    own[1] += m[i] * v[i][0];
    own[2] += 0.5 * m[i] * (v[i][0] * v[i][0] + v[i][1] * v[i][1] + v[i][2] * v[i][2]);
    own[3] += m[i] * u[i];
    own[4] += 0.5 * m[i] * phi[i];
    own[5] += m[i] * sqrt(g[i][0] * g[i][0] + g[i][1] * g[i][1] + g[i][2] * g[i][2]);
    own[6] += total - local;
  }
  OK(MPI_Allreduce(own, sum, 7, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
}

#include "sph_campaign.h"

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
  OK(MPI_Comm_size(MPI_COMM_WORLD, &size));
  CHECK(argc >= 4);
  prepare(argv[1], atoi(argv[2]));
  evaluate();
  memcpy(h, hn, (size_t)local * sizeof *h);
  evaluate();
  find_dt();
  if (strcmp(argv[3], "flips") == 0) {
    CHECK(argc >= 8);
    campaign(atoi(argv[4]), atoi(argv[5]), (unsigned)atoi(argv[6]), atoi(argv[7]));
  } else {
    double t = 0, sum[7];
    for (int i = 0; i <= atoi(argv[3]); i++) {
      totals(sum);
      if (rank == 0 && (i % 10 == 0 || i == atoi(argv[3])))
        printf(
            "step %d t %.6f mass %.12f momentum %.12f kinetic %.9f internal %.9f potential %.9f total %.9f pull %.6f\n",
            i, t, sum[0], sum[1], sum[2], sum[3], sum[4], sum[2] + sum[3] + sum[4], sum[5]);
      if (i == atoi(argv[3])) break;
      t += dt;
      step();
    }
    int64_t anywhere = 0;
    OK(MPI_Allreduce(&found, &anywhere, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD));
    if (rank == 0)
      printf("particles %d neighbours %.1f found %lld\n", all, (double)first[local] / local, (long long)anywhere);
  }
  resil_spr_destroy(set);
  OK(MPI_Type_free(&gathered_type));
  OK(MPI_Finalize());
  return 0;
}
