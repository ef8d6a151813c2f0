// SPDX-License-Identifier: Apache-2.0
//
// Who ended this rank. A launcher that sees one rank die sends SIGTERM to the others; afterwards all of them look
// alike, unless the signal has left a mark. Signal context: stores into the ring, open, read and close, then the
// signal's default action.
#pragma once

namespace resil::hang {

/// In MPI_Init: only where SIGTERM has its default action. A handler that the program installs later replaces this one.
void killed_install();

}  // namespace resil::hang
