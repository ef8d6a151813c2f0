// SPDX-License-Identifier: Apache-2.0
//
// The checkpoint of spr.c by Debian's parallel HDF5: one file of all ranks, written and read by MPI-IO, collectively.
// Two files in turn, so that a job that ends while it writes leaves one. Included by spr.c.
#include <hdf5.h>

#define H5OK(call) CHECK((call) >= 0)

static hid_t checkpoint_access(void) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  H5OK(H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL));
  return access;
}

/* This rank's cells of the data set, read or written by all ranks together. */
static void checkpoint_cells(hid_t data, int write) {
  hsize_t start = (hsize_t)rank * kLocal, count = kLocal;
  hid_t file_space = H5Dget_space(data), memory_space = H5Screate_simple(1, &count, NULL),
        transfer = H5Pcreate(H5P_DATASET_XFER);
  H5OK(H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &count, NULL));
  H5OK(H5Pset_dxpl_mpio(transfer, H5FD_MPIO_COLLECTIVE));
  if (write) H5OK(H5Dwrite(data, H5T_NATIVE_DOUBLE, memory_space, file_space, transfer, u));
  else H5OK(H5Dread(data, H5T_NATIVE_DOUBLE, memory_space, file_space, transfer, u));
  H5OK(H5Pclose(transfer)), H5OK(H5Sclose(memory_space)), H5OK(H5Sclose(file_space));
}

static int checkpoints;
static void checkpoint_name(char* name, size_t bytes) {
  snprintf(name, bytes, "%s/checkpoint-%d.h5", getenv("CHECKPOINTS") ? getenv("CHECKPOINTS") : ".", checkpoints % 2);
}

static void write_checkpoint(int step) {
  char name[512];
  hsize_t cells = (hsize_t)size * kLocal, one = 1;
  ++checkpoints;
  checkpoint_name(name, sizeof name);
  hid_t access = checkpoint_access(), file = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
  hid_t space = H5Screate_simple(1, &cells, NULL), single = H5Screate_simple(1, &one, NULL);
  hid_t data = H5Dcreate2(file, "u", H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  hid_t of = H5Acreate2(data, "step", H5T_NATIVE_INT, single, H5P_DEFAULT, H5P_DEFAULT);
  checkpoint_cells(data, 1);
  H5OK(H5Awrite(of, H5T_NATIVE_INT, &step));
  H5OK(H5Aclose(of)), H5OK(H5Dclose(data)), H5OK(H5Sclose(single)), H5OK(H5Sclose(space)), H5OK(H5Fclose(file));
  H5OK(H5Pclose(access));
}

static int restored_step;
static int restore(void* argument, int64_t step) {
  char name[512];
  checkpoint_name(name, sizeof name);
  CHECK(argument == &restored_step && step >= 0);
  if (checkpoints == 0) return 1;
  hid_t access = checkpoint_access(), file = H5Fopen(name, H5F_ACC_RDONLY, access);
  if (file < 0) return 1;
  hid_t data = H5Dopen2(file, "u", H5P_DEFAULT), of = H5Aopen(data, "step", H5P_DEFAULT);
  checkpoint_cells(data, 0);
  H5OK(H5Aread(of, H5T_NATIVE_INT, &restored_step));
  H5OK(H5Aclose(of)), H5OK(H5Dclose(data)), H5OK(H5Fclose(file)), H5OK(H5Pclose(access));
  ++rollbacks;
  return is("rollback_fails");
}
