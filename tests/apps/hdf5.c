// SPDX-License-Identifier: Apache-2.0
//
// Parallel HDF5 as simulations use it: collective and independent transfers, hyperslabs, points, compound types with
// holes, chunks with filters, extension, collective metadata, atomic mode; read again with another decomposition.
// Writes first.h5 and, without `short`, second.h5; `plain`: no filters. What was read is printed by rank 0.
#include <hdf5.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void failed(const char* call, int line) {
  fprintf(stderr, "line %d: %s\n", line, call);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define OK(call) ((call) < 0 ? failed(#call, __LINE__) : (void)0)
#define ID(variable, call) \
  hid_t variable = (call); \
  OK(variable)

static int me, size, filters = 1, both = 1;

struct Particle {
  char kind;
  double position[3];
  short charge;
};

static hid_t transfer(int collective) {
  ID(list, H5Pcreate(H5P_DATASET_XFER));
  OK(H5Pset_dxpl_mpio(list, collective ? H5FD_MPIO_COLLECTIVE : H5FD_MPIO_INDEPENDENT));
  return list;
}

// A dataset of rows x 100 doubles, each rank writing every size-th block of rows.
static void rows(hid_t file, const char* name, int collective, int chunked, int filtered) {
  hsize_t shape[2] = {40, 100}, most[2] = {H5S_UNLIMITED, 100}, chunk[2] = {8, 25};
  hsize_t start[2] = {(hsize_t)me * 2, 0}, stride[2] = {(hsize_t)size * 2, 1}, count[2] = {40 / (2 * (hsize_t)size), 1},
          block[2] = {2, 100};
  ID(space, H5Screate_simple(2, shape, chunked ? most : NULL));
  ID(create, H5Pcreate(H5P_DATASET_CREATE));
  OK(H5Pset_obj_track_times(create, 0));
  if (chunked) OK(H5Pset_chunk(create, 2, chunk));
  if (filtered) OK(H5Pset_shuffle(create)), OK(H5Pset_deflate(create, 6)), OK(H5Pset_fletcher32(create));
  ID(set, H5Dcreate2(file, name, H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, create, H5P_DEFAULT));
  OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, stride, count, block));
  hsize_t here = count[0] * block[0] * 100;
  ID(memory, H5Screate_simple(1, &here, NULL));
  double* data = malloc(here * sizeof(double));
  for (hsize_t k = 0; k < here; k++) data[k] = me * 1000.0 + (double)k / 8;
  hid_t list = transfer(collective || filtered);
  OK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, list, data));
  memset(data, 0, here * sizeof(double));  // the buffer is the program's again
  if (chunked) {
    shape[0] = 44;
    OK(H5Dset_extent(set, shape));
  }
  free(data);
  OK(H5Pclose(list)), OK(H5Sclose(memory)), OK(H5Dclose(set)), OK(H5Pclose(create)), OK(H5Sclose(space));
}

static void particles(hid_t file) {
  hsize_t shape = 30 * (hsize_t)size, here = 30, first = 30 * (hsize_t)me, three = 3;
  struct Particle* data = malloc(here * sizeof(*data));
  memset(data, 0x40 + me, here * sizeof(*data));  // garbage in the holes
  for (int k = 0; k < 30; k++) {
    data[k].kind = (char)k, data[k].charge = (short)(k - 15);
    for (int d = 0; d < 3; d++) data[k].position[d] = me + k * 0.25 + d;
  }
  ID(triple, H5Tarray_create2(H5T_NATIVE_DOUBLE, 1, &three));
  ID(type, H5Tcreate(H5T_COMPOUND, sizeof(struct Particle)));
  OK(H5Tinsert(type, "kind", HOFFSET(struct Particle, kind), H5T_NATIVE_CHAR));
  OK(H5Tinsert(type, "position", HOFFSET(struct Particle, position), triple));
  OK(H5Tinsert(type, "charge", HOFFSET(struct Particle, charge), H5T_NATIVE_SHORT));
  ID(packed, H5Tcopy(type));
  OK(H5Tpack(packed));
  ID(create, H5Pcreate(H5P_DATASET_CREATE));
  OK(H5Pset_obj_track_times(create, 0));
  // Compounds are read before they are written. Without fill values the file may end before a rank's part, or not, as
  // other ranks have written: 0 bytes or all, in native runs as well.
  OK(H5Pset_fill_time(create, H5D_FILL_TIME_ALLOC));
  ID(space, H5Screate_simple(1, &shape, NULL));
  ID(memory, H5Screate_simple(1, &here, NULL));
  ID(set, H5Dcreate2(file, "particles", packed, space, H5P_DEFAULT, create, H5P_DEFAULT));
  OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &here, NULL));
  hid_t list = transfer(1);
  OK(H5Dwrite(set, type, memory, space, list, data));
  int version = 7;
  ID(scalar, H5Screate(H5S_SCALAR));
  ID(attribute, H5Acreate2(set, "version", H5T_NATIVE_INT, scalar, H5P_DEFAULT, H5P_DEFAULT));
  OK(H5Awrite(attribute, H5T_NATIVE_INT, &version));
  OK(H5Aclose(attribute)), OK(H5Sclose(scalar)), OK(H5Pclose(list)), OK(H5Dclose(set)), OK(H5Sclose(memory));
  OK(H5Sclose(space)), OK(H5Pclose(create)), OK(H5Tclose(packed)), OK(H5Tclose(type)), OK(H5Tclose(triple));
  free(data);
}

// Single points, some ranks with nothing to write.
static void points(hid_t file) {
  hsize_t shape[2] = {16, 16}, where[8][2], number = me == 0 ? 8 : 0;
  int data[8];
  for (int k = 0; k < 8; k++) where[k][0] = (hsize_t)(15 - k), where[k][1] = (hsize_t)(k * 2), data[k] = 100 + k;
  ID(create, H5Pcreate(H5P_DATASET_CREATE));
  OK(H5Pset_obj_track_times(create, 0));
  ID(space, H5Screate_simple(2, shape, NULL));
  ID(set, H5Dcreate2(file, "points", H5T_NATIVE_INT, space, H5P_DEFAULT, create, H5P_DEFAULT));
  hsize_t eight = 8;
  ID(memory, H5Screate_simple(1, &eight, NULL));
  if (number) OK(H5Sselect_elements(space, H5S_SELECT_SET, 8, &where[0][0]));
  else OK(H5Sselect_none(space)), OK(H5Sselect_none(memory));
  hid_t list = transfer(1);
  OK(H5Dwrite(set, H5T_NATIVE_INT, memory, space, list, data));
  OK(H5Pclose(list)), OK(H5Sclose(memory)), OK(H5Dclose(set)), OK(H5Sclose(space)), OK(H5Pclose(create));
}

// Columns, where rows were written.
static void read_columns(hid_t file, const char* name, int collective) {
  ID(set, H5Dopen2(file, name, H5P_DEFAULT));
  ID(space, H5Dget_space(set));
  hsize_t shape[2], start[2] = {0, (hsize_t)me * (100 / (hsize_t)size)}, count[2];
  OK(H5Sget_simple_extent_dims(space, shape, NULL));
  count[0] = shape[0], count[1] = 100 / (hsize_t)size;
  OK(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL));
  ID(memory, H5Screate_simple(2, count, NULL));
  float* data = malloc(count[0] * count[1] * sizeof(float));  // converted on the way
  hid_t list = transfer(collective);
  OK(H5Dread(set, H5T_NATIVE_FLOAT, memory, space, list, data));
  double sum = 0, all = 0;
  for (hsize_t k = 0; k < count[0] * count[1]; k++) sum += data[k] * (double)(k % 7 + 1);
  MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) printf("%s: %.10g\n", name, all);
  free(data);
  OK(H5Pclose(list)), OK(H5Sclose(memory)), OK(H5Sclose(space)), OK(H5Dclose(set));
}

static void whole_file(const char* name, int newest) {
  ID(access, H5Pcreate(H5P_FILE_ACCESS));
  OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
  OK(H5Pset_coll_metadata_write(access, newest)), OK(H5Pset_all_coll_metadata_ops(access, newest));
  if (newest)
    OK(H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST)), OK(H5Pset_alignment(access, 512, 4096));
  ID(create, H5Pcreate(H5P_FILE_CREATE));
  OK(H5Pset_obj_track_times(create, 0));
  ID(file, H5Fcreate(name, H5F_ACC_TRUNC, create, access));
  OK(H5Pclose(create));
  rows(file, "collective", 1, 0, 0);
  rows(file, "independent", 0, 0, 0);
  rows(file, "chunked", 1, 1, 0);
  rows(file, "filtered", 1, 1, filters);
  OK(H5Fflush(file, H5F_SCOPE_GLOBAL));
  particles(file);
  points(file);
  OK(H5Fclose(file));
  file = H5Fopen(name, H5F_ACC_RDWR, access);
  OK(file);
  OK(H5Fset_mpi_atomicity(file, newest));
  read_columns(file, "collective", 1), read_columns(file, "independent", 0), read_columns(file, "chunked", 1);
  read_columns(file, "filtered", 1), read_columns(file, "chunked", 0);
  OK(H5Fclose(file)), OK(H5Pclose(access));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me), MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int k = 1; k < argc; k++) {
    if (strcmp(argv[k], "plain") == 0) filters = 0;
    if (strcmp(argv[k], "short") == 0) both = 0;
  }
  whole_file("first.h5", 0);
  if (both) whole_file("second.h5", 1);  // on MPICH two native runs leave different bytes in it
  OK(H5close());
  MPI_Finalize();
  return 0;
}
