// SPDX-License-Identifier: Apache-2.0
//
// Addresses of the overlay and what the kernel calls them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "detectors/hang/overlay/overlay.h"

namespace resil::hang::overlay {

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_storage storage;
};

/// Length of `to`; 0: the address is none.
socklen_t to_kernel(const Address& address, SocketAddress* to);
/// False: a family that the overlay does not speak. An IPv4 address that came through an IPv6 socket is IPv4.
bool from_kernel(const SocketAddress& from, Address* address);
/// Ports do not count.
bool same_ip(const Address& one, const Address& other);

/// socket(2) and options for a connection to `to`, bound to `from`, so that the other side finds the sender in its
/// table on a host with several addresses. connect(2) has been called; -1 and errno on failure.
int connect_from(const Address& from, const Address& to);

/// Nagle's algorithm would hold back the second of two small frames.
void no_delay(int fd);

}  // namespace resil::hang::overlay
