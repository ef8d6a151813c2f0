// SPDX-License-Identifier: Apache-2.0
//
// The dump signal: who handled it before, our handler, and who handles it now. May touch: the disposition of one
// signal.
#pragma once

#include "detectors/dump/writer.h"
#include "shim/base/safe_text.h"

namespace resil::dump {

/// Who would get the signal now.
enum class Disposition { kOurs, kDefault, kIgnored, kUcx, kOther };

/// Makes dumps possible and, when `signal` is not 0, installs the handler, remembering the one before (but not one of
/// UCX, which only raises its log level). Normal context. `workspace` stays in use for good. False: sigaction failed.
bool install_handler(int signal, Workspace* workspace);

/// Installs it again over whatever is there now, without remembering that. Normal context.
bool install_handler_again();

/// Who handles the signal now; for kUcx and kOther `path` is the object of the handler. Normal context.
Disposition current_disposition(char* path, size_t capacity);

/// "SIGHUP", "SIGRTMIN+3". Async-signal-safe.
void put_signal(SafeText& text, int signal);

}  // namespace resil::dump
