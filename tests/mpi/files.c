// SPDX-License-Identifier: Apache-2.0
//
// MPI-IO: independent, collective, shared-pointer, nonblocking and split collective writes and reads through a
// strided view, in the file named on the command line. The caller compares the file's bytes too, and runs this on
// both of Open MPI's layers (OMPIO and ROMIO). What the library calls inside itself must not be counted.
//
// ranks: 2
// arguments: FILE
// calls: MPI_File_open=2 MPI_File_close=2 MPI_File_set_view=2 MPI_File_write_at=1 MPI_File_write_at_all=1
// calls: MPI_File_write_all=1 MPI_File_write=1 MPI_File_read_all=1 MPI_File_read_at=2 MPI_File_iwrite_at=1
// calls: MPI_File_iread_at=1 MPI_File_write_at_all_begin=1 MPI_File_write_at_all_end=1 MPI_File_seek=2
// calls: MPI_File_sync=2 MPI_File_get_size=1 MPI_File_set_size=1 MPI_File_preallocate=1 MPI_File_delete=1
// calls: MPI_File_write_ordered=1 MPI_File_get_byte_offset=1 MPI_File_get_position=1 MPI_Wait=2
// calls: MPI_Isend=0 MPI_Irecv=0 MPI_Allreduce=0 MPI_Bcast=0 MPI_Gather=0 MPI_Allgather=0
#include <mpi.h>
#include <string.h>

#include "check.h"

enum { kBlocks = 64, kBlock = 256 };

static int me;
static int out[kBlocks * kBlock], in[kBlocks * kBlock];

// Rank r owns every second block of 256 ints.
static void strided(const char* name) {
  MPI_File file;
  MPI_Datatype view;
  MPI_Status status;
  MPI_Request request;
  MPI_Offset size, position;
  int count;
  OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  OK(MPI_File_set_size(file, 0));
  OK(MPI_File_preallocate(file, 4096));
  OK(MPI_Type_vector(kBlocks, kBlock, 2 * kBlock, MPI_INT, &view));
  OK(MPI_Type_commit(&view));
  OK(MPI_File_set_view(file, (MPI_Offset)(me * kBlock * (int)sizeof(int)), MPI_INT, view, "native", MPI_INFO_NULL));
  OK(MPI_File_write_all(file, out, kBlocks * kBlock, MPI_INT, &status));
  OK(MPI_Get_count(&status, MPI_INT, &count));
  CHECK(count == kBlocks * kBlock);
  OK(MPI_File_sync(file));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
  OK(MPI_File_read_all(file, in, kBlocks * kBlock, MPI_INT, MPI_STATUS_IGNORE));
  CHECK(memcmp(in, out, sizeof in) == 0);
  OK(MPI_File_get_position(file, &position));
  CHECK(position == kBlocks * kBlock);
  OK(MPI_File_get_byte_offset(file, 0, &position));
  CHECK(position == me * kBlock * (int)sizeof(int));
  OK(MPI_Type_free(&view));

  OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
  const MPI_Offset tail = 2 * kBlocks * kBlock + me * 100;
  OK(MPI_File_write_at(file, tail, out, 10, MPI_INT, MPI_STATUS_IGNORE));
  OK(MPI_File_write_at_all(file, tail + 10, out, 10, MPI_INT, MPI_STATUS_IGNORE));
  OK(MPI_File_iwrite_at(file, tail + 20, out, 10, MPI_INT, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  OK(MPI_File_write_at_all_begin(file, tail + 30, out, 10, MPI_INT));
  OK(MPI_File_write_at_all_end(file, out, MPI_STATUS_IGNORE));
  OK(MPI_File_seek(file, tail + 40, MPI_SEEK_SET));
  OK(MPI_File_write(file, out, 60, MPI_INT, MPI_STATUS_IGNORE));
  OK(MPI_File_sync(file));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_File_read_at(file, tail + 25, in, 5, MPI_INT, MPI_STATUS_IGNORE));
  CHECK(memcmp(in, out + 5, 5 * sizeof(int)) == 0);
  OK(MPI_File_iread_at(file, tail + 35, in, 5, MPI_INT, &request));
  OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK(memcmp(in, out + 5, 5 * sizeof(int)) == 0);
  OK(MPI_File_get_size(file, &size));
  CHECK(size == (MPI_Offset)sizeof(int) * (2 * kBlocks * kBlock + 200));
  OK(MPI_File_close(&file));
  CHECK(file == MPI_FILE_NULL);
}

static void ordered(const char* name) {
  char other[4096];
  MPI_File file;
  snprintf(other, sizeof other, "%s.ordered", name);
  OK(MPI_File_open(MPI_COMM_WORLD, other, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
  OK(MPI_File_write_ordered(file, out, 3, MPI_INT, MPI_STATUS_IGNORE));
  OK(MPI_Barrier(MPI_COMM_WORLD));
  OK(MPI_File_read_at(file, (MPI_Offset)sizeof(int) * 3 * (1 - me), in, 3, MPI_INT, MPI_STATUS_IGNORE));
  CHECK(in[0] == 1000000 * (1 - me));
  OK(MPI_File_close(&file));
  if (me == 0) OK(MPI_File_delete(other, MPI_INFO_NULL));
}

int main(int argc, char** argv) {
  OK(MPI_Init(&argc, &argv));
  OK(MPI_Comm_rank(MPI_COMM_WORLD, &me));
  CHECK(argc == 2);
  for (int i = 0; i < kBlocks * kBlock; i++) out[i] = 1000000 * me + i;
  strided(argv[1]);
  ordered(argv[1]);
  OK(MPI_Finalize());
  if (me == 0) printf("files written and read\n");
  return 0;
}
