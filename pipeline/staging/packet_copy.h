// SPDX-License-Identifier: Apache-2.0
//
// The copies between a device's buffer with a datatype's layout and host memory: which there are, in as few orders to
// the driver as the layout allows. Inside packet*.cpp only.
#pragma once

#include "pipeline/staging/packet.h"

namespace resil::staging {

// --- packet_copy.cpp: one datatype ---

/// `count` elements of `type` at `device`, and their host memory: packed, or (`packed` false) laid out as they are,
/// `host` standing for `device`.
struct Part {
  const TypeMap* type;
  int64_t count;
  char* device;
  char* host;
  bool packed;
};

/// Orders to the driver that copying the first `bytes` bytes of the part's stream takes; about.
uint64_t copy_orders(const Part& part, uint64_t bytes);

/// Enqueues the copies of the first `bytes` bytes of the stream, only data. False: the driver refused one; others may
/// be under way.
bool copy_part(gpu::Device& device, const Part& part, uint64_t bytes, bool up);

// --- packet_plan.cpp: a packet ---

/// Enqueues what packet->copy says. False: refused; copies may be under way all the same.
bool plan_down(Packet* packet);
bool plan_up(Packet* packet);
/// What has been enqueued is complete: does what is left to the host.
void plan_copied(Packet* packet);
/// Nobody reads them any more: gives scratch memory and the stream's table back.
void plan_end(Packet* packet);

}  // namespace resil::staging
