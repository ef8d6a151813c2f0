/* SPDX-License-Identifier: Apache-2.0
 *
 * What staging_collectives does besides every call with every mixture of memory: failures of the runtime, memory that
 * is freed too early, requests that are, and calls that go to the library as they are. Part of staging_collectives.c.
 */

static void large(size_t bytes) {
  const int number = (int)(bytes / sizeof(int));
  int *host = malloc(bytes), *device = device_memory(bytes), *result = device_memory(bytes);
  for (int i = 0; i < number; i++) host[i] = i * 3;
  if (rank == 0) CHECK(gpu.up((uintptr_t)device, host, bytes) == 0);
  OK(MPI_Bcast(device, number, MPI_INT, 0, MPI_COMM_WORLD));
  OK(MPI_Allreduce(device, result, number, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
  CHECK(gpu.down(host, (uintptr_t)result, bytes) == 0);
  for (int i = 0; i < number; i++) CHECK(host[i] == i * 3 * size);
  printf("large %zu\n", bytes);
}

static void refused(int error) {
  int class = 0;
  OK(MPI_Error_class(error, &class));
  printf("refused %s\n", class == MPI_ERR_OTHER ? "MPI_ERR_OTHER" : "otherwise");
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void gone(void) {
  int* device = device_memory(1 << 16);
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  for (int i = 0; i < 100; i++) {
    const int error = MPI_Allreduce(MPI_IN_PLACE, device, 1 << 14, MPI_INT, MPI_SUM, MPI_COMM_SELF);
    if (error != MPI_SUCCESS) refused(error);
  }
}

/* A send is copied in the call that starts it, so that it is right; a message that comes later has nowhere to go. */
static void freed_messages(void) {
  enum { kCount = 4096 };
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  static int host[kCount];
  for (int i = 0; i < kCount; i++) host[i] = i * 3;
  if (rank == 0) {
    int* device = device_memory(sizeof(host));
    CHECK(gpu.up((uintptr_t)device, host, sizeof(host)) == 0);
    OK(MPI_Isend(device, kCount, MPI_INT, 1, 2, MPI_COMM_WORLD, &request));
    CHECK(gpu.release((uintptr_t)device) == 0);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    device = device_memory(sizeof(host));
    OK(MPI_Irecv(device, kCount, MPI_INT, 1, 3, MPI_COMM_WORLD, &request));
    CHECK(gpu.release((uintptr_t)device) == 0);
    OK(MPI_Send(host, 0, MPI_INT, 1, 4, MPI_COMM_WORLD));
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS);
    device = device_memory(sizeof(host));
    OK(MPI_Send_init(device, kCount, MPI_INT, 1, 5, MPI_COMM_WORLD, &request));
    CHECK(gpu.release((uintptr_t)device) == 0);
    CHECK(MPI_Start(&request) != MPI_SUCCESS);
    OK(MPI_Request_free(&request));
    printf("freed messages\n");
  } else {
    memset(host, 0, sizeof(host));
    OK(MPI_Recv(host, kCount, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    for (int i = 0; i < kCount; i++) CHECK(host[i] == i * 3);
    OK(MPI_Recv(host, 0, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Send(host, kCount, MPI_INT, 0, 3, MPI_COMM_WORLD));
  }
}

static void freed(void) {
  int *device = device_memory(1 << 16), *host = calloc(1 << 14, sizeof(int));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (rank != 0) { /* takes part once that is done */
    OK(MPI_Recv(host, 0, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Allreduce(host, device, 1 << 14, MPI_INT, MPI_SUM, MPI_COMM_SELF));
  }
  OK(MPI_Iallreduce(host, device, 1 << 14, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
  if (rank == 0) {
    CHECK(gpu.release((uintptr_t)device) == 0);
    OK(MPI_Send(host, 0, MPI_INT, 1, 1, MPI_COMM_WORLD));
  }
  const int error = MPI_Wait(&request, MPI_STATUS_IGNORE);
  if (rank == 0) refused(error);
  OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Persistent messages that are freed while they are active are seen through to their ends, and leave no memory behind.
 */
static void forgotten(void) {
  enum { kCount = 30000 };
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int host[kCount], *give = device_memory(sizeof(host)), *get = device_memory(sizeof(host));
  for (int turn = 1; turn < 100; turn++) {
    int seen = 0, flag;
    for (int i = 0; i < kCount; i++) host[i] = turn * 5 + i;
    CHECK(gpu.up((uintptr_t)give, host, sizeof(host)) == 0);
    OK(MPI_Recv_init(get, kCount, MPI_INT, before, 79, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Request_free(&request));
    CHECK(request == MPI_REQUEST_NULL);
    OK(MPI_Send_init(give, kCount, MPI_INT, next, 79, MPI_COMM_WORLD, &request));
    OK(MPI_Start(&request));
    OK(MPI_Request_free(&request));
    while (seen != turn * 5 + kCount - 1) {
      OK(MPI_Iprobe(before, 80, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
      CHECK(gpu.down(&seen, (uintptr_t)(get + kCount - 1), sizeof(seen)) == 0);
    }
    CHECK(gpu.down(host, (uintptr_t)get, sizeof(host)) == 0);
    for (int i = 0; i < kCount; i++) CHECK(host[i] == turn * 5 + i);
    OK(MPI_Barrier(MPI_COMM_WORLD));
  }
  printf("forgotten\n");
}

static void together(void) {
  enum { kCount = 3000 };
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int host[kCount], *give = device_memory(2 * sizeof(host)), *get = device_memory(2 * sizeof(host)),
                    *sum = device_memory(sizeof(host));
  MPI_Request all[6];
  OK(MPI_Recv_init(get + kCount, 1000, MPI_INT, next, 9, MPI_COMM_WORLD, &all[4]));
  OK(MPI_Send_init(give + kCount, 1000, MPI_INT, before, 9, MPI_COMM_WORLD, &all[5]));
  for (int turn = 0; turn < 9; turn++) {
    for (int i = 0; i < kCount; i++) host[i] = i * 7 + rank + turn;
    CHECK(gpu.up((uintptr_t)give, host, sizeof(host)) == 0 &&
          gpu.up((uintptr_t)(give + kCount), host, sizeof(host)) == 0);
    OK(MPI_Irecv(get, kCount, MPI_INT, next, turn, MPI_COMM_WORLD, &all[0]));
    OK(MPI_Isend(give, kCount - turn, MPI_INT, before, turn, MPI_COMM_WORLD, &all[1]));
    OK(MPI_Iallreduce(give, sum, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &all[2]));
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &all[3]));
    OK(MPI_Startall(2, &all[4]));
    int at[6], number;
    if (turn % 3 == 0) OK(MPI_Waitall(6, all, MPI_STATUSES_IGNORE));
    for (int left = turn % 3 == 1 ? 6 : 0; left > 0; left--) OK(MPI_Waitany(6, all, at, MPI_STATUS_IGNORE));
    for (int left = turn % 3 == 2 ? 6 : 0; left > 0; left -= number)
      OK(MPI_Testsome(6, all, &number, at, MPI_STATUSES_IGNORE));
    CHECK(gpu.down(host, (uintptr_t)sum, sizeof(host)) == 0);
    for (int i = 0; i < kCount; i++) CHECK(host[i] == size * (i * 7 + turn) + size * (size - 1) / 2);
    CHECK(gpu.down(host, (uintptr_t)get, sizeof(host)) == 0);
    for (int i = 0; i < kCount - turn; i++) CHECK(host[i] == i * 7 + next + turn);
    CHECK(gpu.down(host, (uintptr_t)(get + kCount), 1000 * sizeof(int)) == 0);
    for (int i = 0; i < 1000; i++) CHECK(host[i] == i * 7 + next + turn);
  }
  OK(MPI_Request_free(&all[4]));
  OK(MPI_Request_free(&all[5]));
  printf("together\n");
}

/* Calls that are not staged, so made that the library touches no data: whoever does is resil. */
static void left(const char* path) {
  void* device = device_memory(4096);
  MPI_Win win;
  MPI_File file;
  OK(MPI_Win_create(device, 4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Put(device, 100, MPI_INT, MPI_PROC_NULL, 0, 100, MPI_INT, win));
  OK(MPI_Win_fence(0, win));
  OK(MPI_Win_free(&win));
  OK(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL,
                   &file));
  CHECK(MPI_File_read(file, device, 100, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS); /* not opened for that */
  OK(MPI_File_close(&file));
#if MPI_VERSION >= 4
  OK(MPI_Psend_init(device, 4, 10, MPI_INT, rank, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request));
  OK(MPI_Request_free(&request));
#endif
  printf("left\n");
}
