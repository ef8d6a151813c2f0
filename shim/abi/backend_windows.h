// SPDX-License-Identifier: Apache-2.0
//
// Windows. Part of the Backend table; handles are bits. All functions call the PMPI_ layer and need MPI to be usable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace resil {

struct Event;

enum class WindowFlavor : uint8_t { kUnknown, kCreate, kAllocate, kDynamic, kShared };

/// What the window's own attributes say.
struct WindowInfo {
  const void* base;  ///< MPI_WIN_BASE: where the library believes that the local memory begins
  int64_t size;  ///< bytes
  int64_t displacement_unit;
  WindowFlavor flavor;
  bool base_known;
};

struct WindowFunctions {
  uint64_t (*file_at)(const void* address);  ///< bits of the file handle stored there: what MPI_File_open gave
  uint64_t (*handle_at)(const void* address);  ///< bits of the handle stored there: what a window-creating call gave
  bool (*describe)(uint64_t window, WindowInfo* info);  ///< local
  /// MPI_Win_fence's assertions; MPI requires them of all ranks or of none.
  bool (*no_precede)(int assertion);
  bool (*no_succeed)(int assertion);
  bool (*no_check)(int assertion);  ///< of MPI_Win_post, start, lock and lock_all
  bool (*exclusive)(int lock_type);
  /// Reads `bytes` bytes at `displacement` (in the target's units) into `to`; complete after flush(). Inside a
  /// passive-target epoch on that target only.
  bool (*get)(uint64_t window, int target, int64_t displacement, void* to, size_t bytes);
  bool (*flush)(uint64_t window, int target);
  /// Makes a window over memory of its own, on this process alone (MPI_COMM_SELF), that begins `misalignment` bytes
  /// behind a multiple of 64, puts into it, and looks whether the data landed `shift` bytes off.
  bool (*lands_off)(size_t misalignment, int64_t shift);
  /// The request of an MPI_Rget of derived datatypes may be complete before its data is there: MPICH up to 4.2 on UCX
  /// gives a complete request for those that are not contiguous, and the data comes by the next flush or unlock.
  bool rget_completes_early;
};

}  // namespace resil
