/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes two of everything that has to be freed, and frees it, or leaves it to MPI_Finalize.
 *
 *   leftovers free|leave|callback|many [DIRECTORY [no-window]]
 *
 * free: frees all. leave: frees the first one of each, or none where there is one only. callback: all is freed in
 * MPI_Finalize, by a deletion callback of MPI_COMM_SELF. many: objects made and freed 200,000 times. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int leave, ranks, rank;

static void types(void) {
  MPI_Datatype made[2], same, contents[2], real;
  int integers[8];
  MPI_Aint addresses[8];
  for (int i = 0; i < 2; ++i) MPI_Type_contiguous(3, MPI_INT, &made[i]);
  MPI_Type_commit(&made[0]);
  MPI_Type_vector(2, 1, 2, made[0], &same);
  /* A derived part is a reference more; MPI_INT is not, nor is a predefined type without a name. */
  MPI_Type_get_contents(same, 3, 0, 1, integers, addresses, contents);
  MPI_Type_free(&contents[0]);
  MPI_Type_get_contents(made[0], 1, 0, 1, integers, addresses, contents);
  MPI_Type_free(&same);
  MPI_Type_create_f90_real(6, MPI_UNDEFINED, &real);
  MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &real);
  MPI_Type_dup(MPI_DOUBLE, &same);
  MPI_Type_free(&same);
  MPI_Type_free(&made[0]);
  if (!leave) MPI_Type_free(&made[1]);
}

static void groups(void) {
  MPI_Group world, again, one, none;
  int zero = 0;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Comm_group(MPI_COMM_WORLD, &again);
  MPI_Group_incl(world, 1, &zero, &one);
  MPI_Group_incl(world, 0, &zero, &none); /* MPI_GROUP_EMPTY */
  MPI_Group_free(&world);
  MPI_Group_free(&one);
  if (!leave) MPI_Group_free(&again);
}

static void communicators(void) {
  MPI_Comm dup, split, later, none;
  MPI_Request request;
  MPI_Comm_dup(MPI_COMM_WORLD, &dup);
  MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none);
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &split);
  MPI_Comm_idup(MPI_COMM_WORLD, &later, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_free(&dup);
  MPI_Comm_disconnect(&split);
  if (!leave) MPI_Comm_free(&later);
}

static void add(void* in, void* out, int* count, MPI_Datatype* type) {
  (void)type;
  for (int i = 0; i < *count; ++i) ((int*)out)[i] += ((int*)in)[i];
}

static void operators(void) {
  MPI_Op made[2];
  for (int i = 0; i < 2; ++i) MPI_Op_create(add, 1, &made[i]);
  MPI_Op_free(&made[0]);
  if (!leave) MPI_Op_free(&made[1]);
}

static void infos(void) {
  MPI_Info made, dup, used;
  MPI_Info_create(&made);
  MPI_Info_dup(made, &dup);
  MPI_Comm_get_info(MPI_COMM_WORLD, &used);
  MPI_Info_free(&made);
  MPI_Info_free(&dup);
  if (!leave) MPI_Info_free(&used);
}

static void handle(MPI_Comm* comm, int* code, ...) {
  (void)comm;
  (void)code;
}

static void handlers(void) {
  MPI_Errhandler made, asked, standard;
  MPI_Comm comm;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &standard); /* predefined */
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_create_errhandler(handle, &made);
  MPI_Comm_set_errhandler(comm, made);
  MPI_Comm_get_errhandler(comm, &asked);
  MPI_Errhandler_free(&asked);
  if (!leave) MPI_Errhandler_free(&made);
  MPI_Comm_free(&comm);
}

static void keyvals(void) {
  int comm, type, win;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comm, NULL);
  MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type, NULL);
  MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &win, NULL);
  MPI_Comm_free_keyval(&comm);
  if (leave) return;
  MPI_Type_free_keyval(&type);
  MPI_Win_free_keyval(&win);
}

static void windows(void) {
  static int memory[4];
  MPI_Win made[2];
  int* at;
  MPI_Win_create(memory, sizeof(memory), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made[0]);
  MPI_Win_allocate(16, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &at, &made[1]);
  MPI_Win_free(&made[0]);
  if (!leave) MPI_Win_free(&made[1]);
}

static void files(const char* name) {
  MPI_File made[2];
  MPI_Info info;
  MPI_Datatype etype, filetype;
  MPI_Offset displacement;
  char how[MPI_MAX_DATAREP_STRING];
  for (int i = 0; i < 2; ++i)
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &made[i]);
  MPI_File_get_view(made[0], &displacement, &etype, &filetype, how);
  MPI_File_get_info(made[0], &info);
  MPI_Info_free(&info);
  MPI_File_close(&made[0]);
  if (!leave) MPI_File_close(&made[1]);
}

static void requests(void) {
  static int there[3], here;
  MPI_Request active[2], ready;
  for (int i = 0; i < 2; ++i) MPI_Irecv(&there[i], 1, MPI_INT, rank, 7 + i, MPI_COMM_WORLD, &active[i]);
  MPI_Recv_init(&there[2], 1, MPI_INT, rank, 9, MPI_COMM_WORLD, &ready);
  MPI_Start(&ready);
  MPI_Send(&here, 1, MPI_INT, rank, 9, MPI_COMM_WORLD);
  MPI_Wait(&ready, MPI_STATUS_IGNORE);
  MPI_Send(&here, 1, MPI_INT, rank, 7, MPI_COMM_WORLD);
  MPI_Wait(&active[0], MPI_STATUS_IGNORE);
  if (leave) return;
  MPI_Send(&here, 1, MPI_INT, rank, 8, MPI_COMM_WORLD);
  MPI_Wait(&active[1], MPI_STATUS_IGNORE);
  MPI_Request_free(&ready);
}

static void buffers(void) {
  static char room[1000 + MPI_BSEND_OVERHEAD];
  char* at;
  int bytes;
  MPI_Buffer_attach(room, sizeof(room));
  if (!leave) MPI_Buffer_detach(&at, &bytes);
}

static MPI_Comm kept_comm;
static MPI_Datatype kept_type;

static int tidy_up(MPI_Comm comm, int key, void* value, void* extra) {
  (void)comm, (void)key, (void)value, (void)extra;
  MPI_Type_free(&kept_type);
  return MPI_Comm_free(&kept_comm);
}

static void callback(void) {
  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, tidy_up, &key, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
  MPI_Comm_free_keyval(&key);
  MPI_Comm_dup(MPI_COMM_SELF, &kept_comm);
  MPI_Type_contiguous(2, MPI_INT, &kept_type);
}

static void many(void) {
  static MPI_Datatype held[3000];
  for (int i = 0; i < 200000; ++i) {
    MPI_Datatype* type = &held[i * 7919 % 3000];
    if (i >= 3000) MPI_Type_free(type);
    MPI_Type_contiguous(1 + i % 5, MPI_INT, type);
  }
  for (int i = 0; i < 3000; ++i) MPI_Type_free(&held[i]);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Errhandler predefined = MPI_ERRORS_RETURN;
  MPI_Datatype none = MPI_DATATYPE_NULL;
  if (MPI_Type_free(&none) == MPI_SUCCESS) printf("no error\n");
  (void)predefined;
}

int main(int argc, char** argv) {
  int provided;
  char name[4096];
  const char* what = argc > 1 ? argv[1] : "free";
  leave = strcmp(what, "leave") == 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  snprintf(name, sizeof(name), "%s/leftovers-%d", argc > 2 ? argv[2] : ".", rank);
  if (strcmp(what, "callback") == 0) {
    callback();
  } else if (strcmp(what, "many") == 0) {
    many();
  } else {
    types();
    groups();
    communicators();
    operators();
    infos();
    handlers();
    keyvals();
    if (argc <= 3) windows(); /* one that is left makes MPICH 4.0.2 over UCX end with an assertion in MPI_Finalize */
    files(name);
    requests();
    buffers();
  }
  MPI_Finalize();
  return 0;
}
