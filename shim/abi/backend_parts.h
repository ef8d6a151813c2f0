// SPDX-License-Identifier: Apache-2.0
//
// What parts of the job (shim/call/parts.h) need of one MPI ABI.
#pragma once

#include <cstddef>
#include <cstdint>

#include "shim/runtime/private_tags.h"

namespace resil {

struct PartFunctions {
  /// Collective over MPI_COMM_WORLD: ranks of one colour. The new communicator has the world's name and error handler,
  /// and is freed in MPI_Finalize, behind the attributes of MPI_COMM_SELF, as the world itself is. The program has
  /// `members` of the world's `size` ranks.
  bool (*split)(int colour, int members, int size, uint64_t* comm);
  /// In a job that goes on after the death of a rank: calls `died()` where a call over the part, or what is made of it,
  /// fails for that reason and the program has set no error handler. All other errors end the job, as by default.
  void (*on_death)(void (*died)());
  /// In place of MPI_Comm_get_attr and MPI_Attr_get: the part's attribute, else the world's.
  void* get_attribute;
  void (*set_world_handler)(uint64_t errhandler);
  /// Of this rank, as MPI says it. False: MPI would not, or it is longer.
  bool (*processor_name)(char* name, size_t room);
  /// In place of MPI_Get_processor_name, once a name has been set: it says that.
  void* get_processor_name;
  void (*set_processor_name)(const char* name);
  /// Does an MPI_File_open with this mode write? Create? Must the file be new?
  void (*file_mode)(int mode, bool* writes, bool* creates, bool* exclusive);
  /// As Backend::send, but complete only when the receiver has taken it into a receive that it had posted.
  bool (*send)(uint64_t comm, const void* data, size_t bytes, int destination, PrivateTag tag, uint64_t* request);
  /// MPI_Finalize.
  void (*finalize)();
  /// In place of MPI_Finalized and MPI_Finalize, once MPI is to count as finalised.
  void* finalized;
  void* finalize_again;
};

}  // namespace resil
