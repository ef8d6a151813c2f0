// SPDX-License-Identifier: Apache-2.0
//
// MPI 4.1: questions about the state of several requests, buffers of a communicator or a session, errors that are removed
// again, pair types by their parts, statuses by calls. For MPIs that have it.
#include "hostile.h"

enum { kMany = 6, kCount = 3000 };

/// Messages and a reduction in flight; looks at them until all are complete, then completes them. The data must be there
/// as soon as MPI says that a request is complete.
static void look(int how, int persistent) {
  static int mine[kMany][kCount], theirs[kMany][kCount];
  double part[4] = {1 + me, 2, 3e-9, me}, sum[4] = {0};
  MPI_Request request[2 * kMany + 3];
  MPI_Status status[2 * kMany + 3];
  memset(status, 0, sizeof(status));  // MPI writes no MPI_ERROR where it returns MPI_SUCCESS
  int n = 0, seen[2 * kMany + 3] = {0}, flag, where[2 * kMany + 3], found;
  for (int k = 0; k < kMany; k++) {
    fill(mine[k], sizeof(mine[k]), k + how), memset(theirs[k], 0, sizeof(theirs[k]));
    if (persistent) MPI_Recv_init(theirs[k], kCount, MPI_INT, other, k, MPI_COMM_WORLD, &request[n++]);
    else MPI_Irecv(theirs[k], kCount, MPI_INT, other, k, MPI_COMM_WORLD, &request[n++]);
  }
  request[n++] = MPI_REQUEST_NULL;
  if (persistent) {
    TRY(MPI_Request_get_status_any(n, request, &found, &flag, &status[0]));
    say("before any is started: any %d %d", flag, found == MPI_UNDEFINED);
    TRY(MPI_Request_get_status_some(n, request, &found, where, status));
    say("some %d", found == MPI_UNDEFINED);
    TRY(MPI_Request_get_status_all(n, request, &flag, status));
    say("all %d", flag);
    MPI_Startall(kMany, request);
  }
  TRY(MPI_Request_get_status_all(n, request, &flag, MPI_STATUSES_IGNORE));
  say("nothing has been sent: %d", flag);
  meet();
  for (int k = 0; k < kMany; k++) MPI_Isend(mine[k], kCount, MPI_INT, other, k, MPI_COMM_WORLD, &request[n++]);
  MPI_Iallreduce(part, sum, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request[n++]);
  request[n++] = MPI_REQUEST_NULL;
  const int reduction = n - 2;
  if (how == 0) {
    for (flag = 0; !flag;) TRY(MPI_Request_get_status_all(n, request, &flag, status));
    for (int k = 0; k < kMany; k++) {
      say_status("all", &status[k], MPI_INT);
      say("%u", sum_of(theirs[k], sizeof(theirs[k])));
    }
    say("%g %g %.17g", sum[0], sum[1], sum[2]);
  } else if (how == 1) {  // one after the other, each once
    MPI_Request rest[2 * kMany + 3];
    memcpy(rest, request, sizeof(rest));
    for (;;) {
      int index = -7;
      TRY(MPI_Request_get_status_any(n, rest, &index, &flag, &status[0]));
      if (!flag) continue;
      if (index == MPI_UNDEFINED) break;
      if (index < kMany) seen[index] = 1 + (int)(sum_of(theirs[index], sizeof(theirs[index])) % 1000) + status[0].MPI_TAG;
      if (index == reduction) seen[index] = (int)sum[0];
      rest[index] = MPI_REQUEST_NULL;
    }
    for (int k = 0; k < n; k++) say("any %d", seen[k]);
  } else {  // what has been seen is left out: the MPIs make no progress while one of the list is complete
    MPI_Request rest[2 * kMany + 3];
    memcpy(rest, request, sizeof(rest));
    for (;;) {
      TRY(MPI_Request_get_status_some(n, rest, &found, where, status));
      if (found == MPI_UNDEFINED) break;
      for (int k = 0; k < found; k++) {
        const int index = where[k];
        if (index < kMany) seen[index] = 1 + (int)(sum_of(theirs[index], sizeof(theirs[index])) % 1000) + status[k].MPI_TAG;
        else seen[index] = index == reduction ? (int)sum[0] : 1;
        rest[index] = MPI_REQUEST_NULL;
      }
    }
    for (int k = 0; k < n; k++) say("some %d", seen[k]);
  }
  MPI_Waitall(n, request, status);
  for (int k = 0; k < kMany; k++) say_status("at last", &status[k], MPI_INT);
  say("%g %u", sum[0], sum_of(theirs, sizeof(theirs)));
  TRY(MPI_Request_get_status_all(0, request, &flag, status));
  say("none: %d", flag);
  TRY(MPI_Request_get_status_any(0, request, &found, &flag, &status[0]));
  say("none: %d %d", flag, found == MPI_UNDEFINED);
  for (int k = 0; persistent && k < kMany; k++) MPI_Request_free(&request[k]);
}
static void status_all(void) { look(0, 0); }
static void status_any(void) { look(1, 0); }
static void status_some(void) { look(2, 0); }
static void status_of_persistent(void) { look(0, 1), look(1, 1), look(2, 1); }

static void statuses(void) {
  MPI_Status status = poisoned();
  int value = -1;
  TRY(MPI_Status_set_source(&status, 1)), TRY(MPI_Status_set_tag(&status, 77)), TRY(MPI_Status_set_error(&status, MPI_ERR_TAG));
  TRY(MPI_Status_get_source(&status, &value)), say("%d", value);
  TRY(MPI_Status_get_tag(&status, &value)), say("%d", value);
  TRY(MPI_Status_get_error(&status, &value)), say("%d", value == MPI_ERR_TAG);
}

static void buffers(void) {
  static char mine[3][1 << 16], message[2000], theirs[2000];
  void* back;
  int size;
  MPI_Request request;
  TRY(MPI_Comm_attach_buffer(MPI_COMM_WORLD, mine[0], sizeof(mine[0])));
  for (int k = 0; k < 10; k++) {
    fill(message, sizeof(message), k + me);
    TRY(MPI_Bsend(message, sizeof(message), MPI_CHAR, other, k, MPI_COMM_WORLD));
    if (k == 3) TRY(MPI_Comm_flush_buffer(MPI_COMM_SELF));
    MPI_Recv(theirs, sizeof(theirs), MPI_CHAR, other, k, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    say("%u", sum_of(theirs, sizeof(theirs)));
  }
  TRY(MPI_Comm_iflush_buffer(MPI_COMM_WORLD, &request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  say("%d", request == MPI_REQUEST_NULL);
  TRY(MPI_Comm_flush_buffer(MPI_COMM_WORLD));
  TRY(MPI_Comm_detach_buffer(MPI_COMM_WORLD, &back, &size));
  say("%d %d", back == mine[0], size);
  TRY(MPI_Buffer_attach(mine[1], sizeof(mine[1])));
  TRY(MPI_Bsend(message, sizeof(message), MPI_CHAR, other, 0, MPI_COMM_WORLD));
  MPI_Recv(theirs, sizeof(theirs), MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  TRY(MPI_Buffer_iflush(&request));
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  TRY(MPI_Buffer_flush());
  TRY(MPI_Buffer_detach(&back, &size));
  say("%d %d", back == mine[1], size);
}

static void errors(void) {
  int class = 0, code = 0, length = 0;
  char text[MPI_MAX_ERROR_STRING] = "";
  TRY(MPI_Add_error_class(&class)), TRY(MPI_Add_error_code(class, &code)), TRY(MPI_Add_error_string(code, "no such thing"));
  TRY(MPI_Error_string(code, text, &length)), say("%s", text);
  TRY(MPI_Remove_error_string(code)), TRY(MPI_Remove_error_code(code)), TRY(MPI_Remove_error_class(class));
}

static void pairs(void) {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  struct { double value; int index; } mine = {me == 0 ? 2 : 1, me}, least = {0, 0};
  TRY(MPI_Type_get_value_index(MPI_DOUBLE, MPI_INT, &type));
  say("%d", type == MPI_DATATYPE_NULL);
  if (type != MPI_DATATYPE_NULL) {
    TRY(MPI_Allreduce(&mine, &least, 1, type, MPI_MINLOC, MPI_COMM_WORLD));
    say("%g %d", least.value, least.index);
  }
}

static void hardware(void) {
  MPI_Info info = MPI_INFO_NULL;
  int keys = -1;
  TRY(MPI_Get_hw_resource_info(&info));
  if (info != MPI_INFO_NULL) MPI_Info_get_nkeys(info, &keys), MPI_Info_free(&info);
  say("%d", keys >= 0);
}

static const struct Case kCases[] = {CASE(status_all), CASE(status_any), CASE(status_some), CASE(status_of_persistent), CASE(statuses),
  CASE(buffers), CASE(errors), CASE(pairs), CASE(hardware), {NULL, NULL}};

int main(int argc, char** argv) { return run_cases(argc, argv, kCases, MPI_THREAD_SINGLE); }
