// SPDX-License-Identifier: Apache-2.0
//
// Part of staging_chunks.c: persistent receives of messages that are cut, or not, completed in every way. The library
// has been asked about them before the program asks; MPICH from 4.2 on makes such a request inactive then, and forgets
// what came.

enum { kWays = 8, kSmall = 5000 };

/// The request is complete, in the way of that number; once all that may be known of it here is known.
static void complete_in(int way, MPI_Request* request, MPI_Status* status) {
  MPI_Request both[2] = {MPI_REQUEST_NULL, *request};
  MPI_Status statuses[2];
  int flag = 0, index = -1, some = 0, indices[2];
  switch (way) {
    case 0: OK(MPI_Wait(request, status)); return;
    case 1:
      while (!flag) OK(MPI_Request_get_status(*request, &flag, status));
      check_status(status, other, 6, MPI_BYTE, kLarge);
      OK(MPI_Wait(request, status));
      return;
    case 2:
      while (!flag) OK(MPI_Test(request, &flag, status));
      return;
    case 3: OK(MPI_Waitall(2, both, statuses)); break;
    case 4:
      while (!flag) OK(MPI_Testall(2, both, &flag, statuses));
      break;
    case 5: OK(MPI_Waitsome(2, both, &some, indices, statuses)); break;
    case 6: OK(MPI_Waitany(2, both, &index, &statuses[1])); break;
    default:
      while (!flag) OK(MPI_Testany(2, both, &index, &flag, &statuses[1]));
  }
  if (way == 5) {
    CHECK(some == 1 && indices[0] == 1);
    statuses[1] = statuses[0];
  }
  if (way > 5) CHECK(index == 1);
  *status = statuses[1];
}

/// Made before and after the first grant. Messages of other sizes than the one that is cut come as they are.
static void persistent(int to_device) {
  settle();
  for (int cut = 1; cut >= 0; cut--) {
    const int size = cut ? kLarge : kSmall;
    char* data = filled(rank == 0 ? 1 : to_device, kLarge, rank == 0 ? 9 : 0);
    MPI_Request request;
    MPI_Status status;
    if (rank == 1) OK(MPI_Recv_init(data, kLarge, MPI_BYTE, other, 6, comm, &request));
    for (int i = 0; i < 2 * kWays; i++) {
      const int late = i / kWays;  // the message is there, and has been looked for, before the program asks
      if (!cut && i % kWays == 1) continue;
      if (rank == 0) {
        OK(MPI_Send(data, size, MPI_BYTE, other, 6, comm));
        OK(MPI_Send(NULL, 0, MPI_BYTE, other, 8, comm));
        OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 7, comm, MPI_STATUS_IGNORE));
        continue;
      }
      int flag = 0;
      OK(MPI_Start(&request));
      if (late) OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 8, comm, MPI_STATUS_IGNORE));
      for (int round = 0; late && round < 50; round++) OK(MPI_Iprobe(other, 9, comm, &flag, MPI_STATUS_IGNORE));
      complete_in(i % kWays, &request, &status);
      if (!late) OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 8, comm, MPI_STATUS_IGNORE));
      check_status(&status, other, 6, MPI_BYTE, size);
      int cancelled = 1;
      OK(MPI_Test_cancelled(&status, &cancelled));
      CHECK(!cancelled);
      check(to_device, data, size, kLarge, 9);
      fill(to_device, data, kLarge, 0);
      OK(MPI_Send(NULL, 0, MPI_BYTE, other, 7, comm));
    }
    if (rank == 1) OK(MPI_Request_free(&request));
    memory_free(rank == 0 ? 1 : to_device, data);
  }
}

static void set_handlers(MPI_Errhandler handler) {
  OK(MPI_Comm_set_errhandler(comm, handler));
  OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler));
  OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, handler));
}

/// The error is told, once, by the call that completes the request; and by none that comes before.
static void persistent_truncated(int to_device) {
  settle();
  set_handlers(MPI_ERRORS_RETURN);
  for (int way = 0; way < 2; way++) {
    if (rank == 0) {
      char* data = filled(1, kSmall, 4);
      OK(MPI_Send(data, kSmall, MPI_BYTE, other, 6, comm));
      OK(MPI_Send(NULL, 0, MPI_BYTE, other, 8, comm));
      memory_free(1, data);
    } else {
      char* data = filled(to_device, kSmall, 0);
      MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      MPI_Status statuses[2];
      int flag = 0;
      OK(MPI_Recv_init(data, kSmall - 100, MPI_BYTE, other, 6, comm, &requests[0]));
      OK(MPI_Start(&requests[0]));
      OK(MPI_Recv(NULL, 0, MPI_BYTE, other, 8, comm, MPI_STATUS_IGNORE));
      for (int round = 0; round < 50; round++) OK(MPI_Iprobe(other, 9, comm, &flag, MPI_STATUS_IGNORE));
      if (way == 0) {
        CHECK(class_of(MPI_Wait(&requests[0], &statuses[0])) == MPI_ERR_TRUNCATE);
      } else {
        const int told = class_of(MPI_Waitall(2, requests, statuses));
#ifdef MPICH  // Open MPI tells nobody of a persistent receive that was complete before
        CHECK(told == MPI_ERR_IN_STATUS && class_of(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE);
#else
        CHECK(told == MPI_ERR_IN_STATUS || told == MPI_SUCCESS);
#endif
      }
      const int again = MPI_Wait(&requests[0], &statuses[0]);
#if !defined(MPICH) || MPI_VERSION >= 4  // 3.4.1 tells it again, of a message that was there before MPI_Start
      OK(again);
#endif
      (void)again;
      if (requests[0] != MPI_REQUEST_NULL) MPI_Request_free(&requests[0]);  // Open MPI 4 has freed it, or refuses
      memory_free(to_device, data);
    }
    OK(MPI_Barrier(comm));
  }
  set_handlers(MPI_ERRORS_ARE_FATAL);
}

#if MPI_VERSION >= 4
/// MPI_Isendrecv whose receive is from MPI_PROC_NULL: its request is one of resil's own, persistent, for the send.
static void from_nobody(int to_device) {
  for (int way = 0; way < kWays; way++) {
    MPI_Status status;
    char* data = filled(rank == 0 || to_device, kSmall, rank == 0 ? 3 : 0);
    if (rank == 0) {
      MPI_Request request;
      int flag = 0;
      OK(MPI_Isendrecv(data, kSmall, MPI_BYTE, other, 2, NULL, 0, MPI_BYTE, MPI_PROC_NULL, 6, comm, &request));
      for (int round = 0; round < 50; round++) OK(MPI_Iprobe(other, 9, comm, &flag, MPI_STATUS_IGNORE));
      if (way == 1) {
        OK(MPI_Wait(&request, &status));
      } else {
        complete_in(way, &request, &status);
      }
      check_status(&status, MPI_PROC_NULL, MPI_ANY_TAG, MPI_BYTE, 0);
    } else {
      OK(MPI_Recv(data, kSmall, MPI_BYTE, other, 2, comm, &status));
      check(to_device, data, kSmall, kSmall, 3);
    }
    memory_free(rank == 0 || to_device, data);
    OK(MPI_Barrier(comm));
  }
}
#else
static void from_nobody(int to_device) { (void)to_device; }
#endif
