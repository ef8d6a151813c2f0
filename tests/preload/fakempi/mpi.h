/* SPDX-License-Identifier: Apache-2.0
 *
 * As much of the standard C ABI of MPI 5.0 as the test program uses. Debian 12 has no MPI with this ABI. Values: MPI
 * 5.0, chapter "Application Binary Interface". */
#ifndef TESTS_FAKEMPI_MPI_H
#define TESTS_FAKEMPI_MPI_H

#include <stdint.h>

typedef intptr_t MPI_Aint;
typedef int64_t MPI_Offset;
typedef int64_t MPI_Count;

typedef struct {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int MPI_internal[5];
} MPI_Status;

typedef struct MPI_ABI_Comm* MPI_Comm;
typedef struct MPI_ABI_Group* MPI_Group;
typedef struct MPI_ABI_Datatype* MPI_Datatype;
typedef struct MPI_ABI_Op* MPI_Op;
typedef struct MPI_ABI_Request* MPI_Request;
typedef struct MPI_ABI_Errhandler* MPI_Errhandler;

#define MPI_OP_NULL ((MPI_Op)0x20)
#define MPI_SUM ((MPI_Op)0x21)
#define MPI_BAND ((MPI_Op)0x28)
#define MPI_COMM_NULL ((MPI_Comm)0x100)
#define MPI_COMM_WORLD ((MPI_Comm)0x101)
#define MPI_COMM_SELF ((MPI_Comm)0x102)
#define MPI_GROUP_NULL ((MPI_Group)0x108)
#define MPI_ERRORS_ARE_FATAL ((MPI_Errhandler)0x141)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x143)
#define MPI_REQUEST_NULL ((MPI_Request)0x180)
#define MPI_DATATYPE_NULL ((MPI_Datatype)0x200)
#define MPI_INT ((MPI_Datatype)0x209)
#define MPI_DOUBLE ((MPI_Datatype)0x214)
#define MPI_BYTE ((MPI_Datatype)0x247)

#define MPI_STATUS_IGNORE ((MPI_Status*)0)
#define MPI_STATUSES_IGNORE ((MPI_Status*)0)
#define MPI_IN_PLACE ((void*)1)

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_COUNT = 2,
  MPI_ERR_RANK = 6,
  MPI_ERR_TRUNCATE = 15,
  MPI_ERR_UNSUPPORTED_OPERATION = 55,
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -2,
  MPI_PROC_NULL = -3,
  MPI_ROOT = -4,
  MPI_UNDEFINED = -32766,
  MPI_THREAD_FUNNELED = 1024,
  MPI_IDENT = 201,
  MPI_CONGRUENT = 202,
  MPI_MAX_OBJECT_NAME = 128,
  MPI_MAX_LIBRARY_VERSION_STRING = 8192
};

typedef int MPI_Comm_copy_attr_function(MPI_Comm, int, void*, void*, void*, int*);
typedef int MPI_Comm_delete_attr_function(MPI_Comm, int, void*, void*);

/* Every function of the fake, once: FAKEMPI(return type, name, parameters). */
#define FAKEMPI_FUNCTIONS(FAKEMPI)                                                                                 \
  FAKEMPI(int, Init, (int* argc, char*** argv))                                                                    \
  FAKEMPI(int, Init_thread, (int* argc, char*** argv, int required, int* provided))                                \
  FAKEMPI(int, Finalize, (void))                                                                                   \
  FAKEMPI(int, Initialized, (int* flag))                                                                           \
  FAKEMPI(int, Finalized, (int* flag))                                                                             \
  FAKEMPI(int, Abort, (MPI_Comm comm, int code))                                                                   \
  FAKEMPI(int, Abi_get_version, (int* major, int* minor))                                                          \
  FAKEMPI(int, Get_version, (int* major, int* minor))                                                              \
  FAKEMPI(int, Get_library_version, (char* text, int* length))                                                     \
  FAKEMPI(int, Comm_rank, (MPI_Comm comm, int* rank))                                                              \
  FAKEMPI(int, Comm_size, (MPI_Comm comm, int* size))                                                              \
  FAKEMPI(int, Comm_remote_size, (MPI_Comm comm, int* size))                                                       \
  FAKEMPI(int, Comm_test_inter, (MPI_Comm comm, int* flag))                                                        \
  FAKEMPI(int, Comm_dup, (MPI_Comm comm, MPI_Comm * copy))                                                         \
  FAKEMPI(int, Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* part))                                    \
  FAKEMPI(int, Comm_free, (MPI_Comm * comm))                                                                       \
  FAKEMPI(int, Comm_group, (MPI_Comm comm, MPI_Group * group))                                                     \
  FAKEMPI(int, Comm_get_name, (MPI_Comm comm, char* name, int* length))                                            \
  FAKEMPI(int, Comm_set_name, (MPI_Comm comm, const char* name))                                                   \
  FAKEMPI(int, Comm_set_errhandler, (MPI_Comm comm, MPI_Errhandler handler))                                       \
  FAKEMPI(int, Comm_create_keyval,                                                                                 \
          (MPI_Comm_copy_attr_function * copy, MPI_Comm_delete_attr_function * remove, int* key, void* extra))     \
  FAKEMPI(int, Comm_free_keyval, (int* key))                                                                       \
  FAKEMPI(int, Comm_set_attr, (MPI_Comm comm, int key, void* value))                                               \
  FAKEMPI(int, Comm_get_attr, (MPI_Comm comm, int key, void* value, int* flag))                                    \
  FAKEMPI(int, Comm_delete_attr, (MPI_Comm comm, int key))                                                         \
  FAKEMPI(int, Group_size, (MPI_Group group, int* size))                                                           \
  FAKEMPI(int, Group_translate_ranks, (MPI_Group from, int count, const int ranks[], MPI_Group to, int out[]))     \
  FAKEMPI(int, Group_free, (MPI_Group * group))                                                                    \
  FAKEMPI(int, Topo_test, (MPI_Comm comm, int* status))                                                            \
  FAKEMPI(int, Type_size, (MPI_Datatype type, int* size))                                                          \
  FAKEMPI(int, Type_size_x, (MPI_Datatype type, MPI_Count * size))                                                 \
  FAKEMPI(int, Type_size_c, (MPI_Datatype type, MPI_Count * size))                                                 \
  FAKEMPI(int, Get_count, (const MPI_Status* status, MPI_Datatype type, int* count))                               \
  FAKEMPI(int, Send, (const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm))            \
  FAKEMPI(int, Recv, (void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Status* s)) \
  FAKEMPI(int, Isend,                                                                                              \
          (const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request* request)) \
  FAKEMPI(int, Future_isend,                                                                                       \
          (const void* buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm, MPI_Request* request)) \
  FAKEMPI(int, Irecv,                                                                                              \
          (void* buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm, MPI_Request* request))     \
  FAKEMPI(int, Wait, (MPI_Request * request, MPI_Status * status))                                                 \
  FAKEMPI(int, Test, (MPI_Request * request, int* flag, MPI_Status* status))                                       \
  FAKEMPI(int, Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]))                                \
  FAKEMPI(int, Request_free, (MPI_Request * request))                                                              \
  FAKEMPI(int, Iprobe, (int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status))                        \
  FAKEMPI(int, Barrier, (MPI_Comm comm))                                                                           \
  FAKEMPI(int, Bcast, (void* buf, int count, MPI_Datatype type, int root, MPI_Comm comm))                          \
  FAKEMPI(int, Allreduce, (const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm))     \
  FAKEMPI(double, Wtime, (void))

#define FAKEMPI_DECLARE(type, name, parameters) \
  type MPI_##name parameters;                   \
  type PMPI_##name parameters;
FAKEMPI_FUNCTIONS(FAKEMPI_DECLARE)

#endif
