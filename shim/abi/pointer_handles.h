// SPDX-License-Identifier: Apache-2.0
//
// Handles of the ABIs in which every handle is a pointer. Included inside the backend's namespace.

struct CommOpaque;
struct GroupOpaque;
struct DatatypeOpaque;
struct OpOpaque;
struct RequestOpaque;
struct InfoOpaque;
struct ErrhandlerOpaque;
struct WinOpaque;
struct FileOpaque;
struct MessageOpaque;
struct SessionOpaque;
using Comm = CommOpaque*;
using Group = GroupOpaque*;
using Datatype = DatatypeOpaque*;
using Op = OpOpaque*;
using Request = RequestOpaque*;
using Info = InfoOpaque*;
using Errhandler = ErrhandlerOpaque*;
using Win = WinOpaque*;
using File = FileOpaque*;
using Message = MessageOpaque*;
using Session = SessionOpaque*;
