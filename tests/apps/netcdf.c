// SPDX-License-Identifier: Apache-2.0
//
// NetCDF in parallel, by PnetCDF (pnetcdf.nc, the classic formats: blocking, nonblocking and buffered puts, record
// variables, strided and scattered access) and by netCDF-4 on parallel HDF5 (netcdf.nc). Prints what was read.
#include <mpi.h>
#include <netcdf.h>
#include <netcdf_par.h>
#include <pnetcdf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void failed(const char* call, int line) {
  fprintf(stderr, "line %d: %s\n", line, call);
  MPI_Abort(MPI_COMM_WORLD, 1);
}
#define OK(call) ((call) != NC_NOERR ? failed(#call, __LINE__) : (void)0)

static int me, size, filters = 1;

static void say(const char* what, double mine) {
  double all = 0;
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (me == 0) printf("%s: %.10g\n", what, all);
}

static void classic(const char* name, int format) {
  int file, dims[3], grid, series, scattered, requests[12], statuses[12];
  OK(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | format, MPI_INFO_NULL, &file));
  OK(ncmpi_def_dim(file, "time", NC_UNLIMITED, &dims[0]));
  OK(ncmpi_def_dim(file, "y", 24, &dims[1]));
  OK(ncmpi_def_dim(file, "x", 60, &dims[2]));
  OK(ncmpi_def_var(file, "grid", NC_DOUBLE, 2, &dims[1], &grid));
  OK(ncmpi_def_var(file, "series", NC_FLOAT, 3, dims, &series));
  OK(ncmpi_def_var(file, "scattered", NC_INT, 2, &dims[1], &scattered));
  OK(ncmpi_put_att_text(file, NC_GLOBAL, "title", 4, "grid"));
  OK(ncmpi_set_fill(file, NC_FILL, NULL));
  OK(ncmpi_enddef(file));
  int rows = 24 / size;
  MPI_Offset start[3] = {me * rows, 0, 0}, count[3] = {rows, 60, 0}, stride[2] = {1, 1};
  double* data = malloc(sizeof(double) * 24 * 60);
  for (int k = 0; k < 24 * 60; k++) data[k] = me * 100 + k * 0.5;
  OK(ncmpi_put_vara_double_all(file, grid, start, count, data));
  // Records by nonblocking puts, two of them buffered.
  OK(ncmpi_buffer_attach(file, 4 * 24 * 60 * sizeof(float)));
  float* values = malloc(sizeof(float) * 6 * 24 * 60);
  for (int t = 0; t < 6; t++) {
    MPI_Offset at[3] = {t, me * rows, 0}, extent[3] = {1, rows, 60};
    float* mine = values + t * 24 * 60;
    for (int k = 0; k < rows * 60; k++) mine[k] = (float)(t + k * 0.25 + me);
    if (t < 2) {
      OK(ncmpi_bput_vara_float(file, series, at, extent, mine, &requests[t]));
      memset(mine, 0x55, sizeof(float) * (size_t)rows * 60);
    } else {
      OK(ncmpi_iput_vara_float(file, series, at, extent, mine, &requests[t]));
    }
  }
  OK(ncmpi_wait_all(file, 6, requests, statuses));
  OK(ncmpi_buffer_detach(file));
  // Every size-th column, then single places.
  MPI_Offset column[2] = {0, me}, columns[2] = {24, 60 / size};
  stride[1] = size;
  int* ints = malloc(sizeof(int) * 24 * 60);
  for (int k = 0; k < 24 * 60; k++) ints[k] = k * (me + 1);
  OK(ncmpi_put_vars_int_all(file, scattered, column, columns, stride, ints));
  MPI_Offset place[3][2] = {{me, 1}, {me + 4, 2}, {me + 8, 3}}, *places[3] = {place[0], place[1], place[2]};
  OK(ncmpi_put_varn_int_all(file, scattered, 3, places, NULL, ints + 7));
  OK(ncmpi_begin_indep_data(file));
  if (me == 0) {
    MPI_Offset corner[2] = {23, 59};
    OK(ncmpi_put_var1_int(file, scattered, corner, &rows));
  }
  OK(ncmpi_end_indep_data(file));
  OK(ncmpi_sync(file));
  OK(ncmpi_close(file));
  OK(ncmpi_open(MPI_COMM_WORLD, name, NC_NOWRITE, MPI_INFO_NULL, &file));
  memset(data, 0, sizeof(double) * 24 * 60);
  MPI_Offset part[2] = {0, me * (60 / size)}, parts[2] = {24, 60 / size};
  OK(ncmpi_get_vara_double_all(file, grid, part, parts, data));
  double sum = 0;
  for (int k = 0; k < 24 * 60 / size; k++) sum += data[k] * (k % 5);
  say("grid", sum);
  MPI_Offset from[3] = {0, 0, me * (60 / size)}, extent[3] = {6, 24, 60 / size};
  OK(ncmpi_iget_vara_float(file, series, from, extent, values, &requests[0]));
  OK(ncmpi_iget_vara_int(file, scattered, part, parts, ints, &requests[1]));
  OK(ncmpi_wait_all(file, 2, requests, statuses));
  sum = 0;
  for (int k = 0; k < 6 * 24 * 60 / size; k++) sum += values[k] * (k % 3);
  say("series", sum);
  sum = 0;
  for (int k = 0; k < 24 * 60 / size; k++) sum += ints[k] % 1000;
  say("scattered", sum);
  OK(ncmpi_close(file));
  free(data), free(values), free(ints);
}

static void on_hdf5(const char* name) {
  int file, dims[2], plain, packed;
  OK(nc_create_par(name, NC_NETCDF4 | NC_MPIIO | NC_CLOBBER, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
  OK(nc_def_dim(file, "y", 32, &dims[0]));
  OK(nc_def_dim(file, "x", 50, &dims[1]));
  OK(nc_def_var(file, "plain", NC_DOUBLE, 2, dims, &plain));
  OK(nc_def_var(file, "packed", NC_INT, 2, dims, &packed));
  size_t chunk[2] = {8, 25}, start[2] = {(size_t)(me * (32 / size)), 0}, count[2] = {(size_t)(32 / size), 50};
  OK(nc_def_var_chunking(file, packed, NC_CHUNKED, chunk));
  if (filters) OK(nc_def_var_deflate(file, packed, 1, 1, 4));
  OK(nc_enddef(file));
  OK(nc_var_par_access(file, plain, NC_INDEPENDENT));
  OK(nc_var_par_access(file, packed, NC_COLLECTIVE));
  double data[32 * 50];
  int ints[32 * 50];
  for (int k = 0; k < 32 * 50; k++) data[k] = k * 0.125 + me, ints[k] = k / 3 + me;
  OK(nc_put_vara_double(file, plain, start, count, data));
  OK(nc_put_vara_int(file, packed, start, count, ints));
  OK(nc_close(file));
  OK(nc_open_par(name, NC_MPIIO, MPI_COMM_WORLD, MPI_INFO_NULL, &file));
  OK(nc_inq_varid(file, "packed", &packed));
  OK(nc_var_par_access(file, packed, NC_COLLECTIVE));
  size_t from[2] = {0, (size_t)(me * (50 / size))}, columns[2] = {32, (size_t)(50 / size)};
  OK(nc_get_vara_int(file, packed, from, columns, ints));
  double sum = 0;
  for (int k = 0; k < 32 * 50 / size; k++) sum += ints[k] * (double)(k % 4);
  say("packed", sum);
  OK(nc_close(file));
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &me), MPI_Comm_size(MPI_COMM_WORLD, &size);
  filters = argc == 1;  // `plain`: none
  classic("classic.nc", 0);
  classic("large.nc", NC_64BIT_DATA);
  on_hdf5("netcdf.nc");
  MPI_Finalize();
  return 0;
}
