// SPDX-License-Identifier: Apache-2.0
//
// Addresses and sockets: which address of this host the others can reach, without looking up a name.
#include "detectors/hang/overlay/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <cstring>
#include <initializer_list>

namespace resil::hang::overlay {

namespace {

constexpr int kBacklog = 1024;  ///< the kernel takes less if net.core.somaxconn is less

/// Interfaces of containers and virtual machines: up on many hosts, and reach no other one.
bool is_bridge(const char* name) {
  for (const char* prefix : {"docker", "virbr", "veth", "br-", "cni", "flannel", "cali", "lxc", "vnet", "podman"})
    if (strncmp(name, prefix, strlen(prefix)) == 0) return true;
  return false;
}

bool is_link_local(const Address& address) {
  return address.family == 4 ? address.ip[0] == 169 && address.ip[1] == 254
                             : address.ip[0] == 0xfe && (address.ip[1] & 0xc0) == 0x80;
}

bool is_loopback(const Address& address) {
  if (address.family == 4) return address.ip[0] == 127;
  static constexpr uint8_t kLoopback[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return memcmp(address.ip, kLoopback, 16) == 0;
}

/// The address from which the kernel would send to somewhere far away. Connecting a UDP socket sends nothing.
bool default_route(uint8_t family, Address* address) {
  SocketAddress far = {}, own = {};
  socklen_t bytes = family == 4 ? sizeof(far.v4) : sizeof(far.v6);
  if (family == 4) {
    far.v4 = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {}, .sin_zero = {}};
    inet_pton(AF_INET, "192.0.2.1", &far.v4.sin_addr);  // set aside for documentation (RFC 5737)
  } else {
    far.v6.sin6_family = AF_INET6, far.v6.sin6_port = htons(9);
    inet_pton(AF_INET6, "2001:db8::1", &far.v6.sin6_addr);
  }
  const int fd = socket(far.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool found = connect(fd, &far.any, bytes) == 0 && getsockname(fd, &own.any, &bytes) == 0 &&
                     from_kernel(own, address) && !is_loopback(*address) && !is_link_local(*address);
  close(fd);
  address->port = 0;
  return found;
}

/// The first address of this host that `suits`.
template <typename Suits>
bool find_interface(Address* address, const Suits& suits) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const int family : {4, 6})
    for (ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != (family == 4 ? AF_INET : AF_INET6)) continue;
      SocketAddress kernel = {};
      memcpy(&kernel, one->ifa_addr, family == 4 ? sizeof(kernel.v4) : sizeof(kernel.v6));
      Address candidate = {};
      if (from_kernel(kernel, &candidate) && !is_link_local(candidate) && suits(*one, candidate))
        *address = candidate, address->port = 0, found = true;
    }
  freeifaddrs(all);
  return found;
}

void choose(Address* own, bool same_host, const char* interface) {
  Address wanted = {};
  if (!same_host && interface != nullptr) {
    SocketAddress parsed = {};
    if (inet_pton(AF_INET, interface, &parsed.v4.sin_addr) == 1) parsed.any.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, interface, &parsed.v6.sin6_addr) == 1) parsed.any.sa_family = AF_INET6;
    const bool given = from_kernel(parsed, &wanted);
    if (find_interface(own, [&](const ifaddrs& one, const Address& address) {
          return given ? same_ip(address, wanted) : strcmp(one.ifa_name, interface) == 0;
        }))
      return;
  }
  const auto usable = [](const ifaddrs& one, const Address& address) {
    return (one.ifa_flags & IFF_UP) != 0 && (one.ifa_flags & IFF_RUNNING) != 0 &&
           (one.ifa_flags & (IFF_LOOPBACK | IFF_POINTOPOINT)) == 0 && !is_loopback(address) && !is_bridge(one.ifa_name);
  };
  if (!same_host && (default_route(4, own) || find_interface(own, usable) || default_route(6, own))) return;
  *own = {.ip = {127, 0, 0, 1}, .port = 0, .family = 4, .reserved = {}};
}

}  // namespace

socklen_t to_kernel(const Address& address, SocketAddress* to) {
  memset(to, 0, sizeof(*to));
  if (address.family == 4) {
    to->v4.sin_family = AF_INET, to->v4.sin_port = htons(address.port);
    memcpy(&to->v4.sin_addr, address.ip, 4);
    return sizeof(to->v4);
  }
  if (address.family == 6) {
    to->v6.sin6_family = AF_INET6, to->v6.sin6_port = htons(address.port);
    memcpy(&to->v6.sin6_addr, address.ip, 16);
    return sizeof(to->v6);
  }
  return 0;
}

bool from_kernel(const SocketAddress& from, Address* address) {
  *address = {};
  if (from.any.sa_family == AF_INET) {
    memcpy(address->ip, &from.v4.sin_addr, 4);
    address->family = 4, address->port = ntohs(from.v4.sin_port);
    return true;
  }
  if (from.any.sa_family == AF_INET6) {
    const bool mapped = IN6_IS_ADDR_V4MAPPED(&from.v6.sin6_addr) != 0;
    memcpy(address->ip, from.v6.sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
    address->family = mapped ? 4 : 6, address->port = ntohs(from.v6.sin6_port);
    return true;
  }
  return false;
}

bool same_ip(const Address& one, const Address& other) {
  return one.family != 0 && one.family == other.family && memcmp(one.ip, other.ip, 16) == 0;
}

void no_delay(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

int connect_from(const Address& from, const Address& to) {
  SocketAddress source, target;
  const socklen_t source_bytes = to_kernel(from, &source), bytes = to_kernel(to, &target);
  if (bytes == 0) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  const int fd = socket(target.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (from.family == to.family && source_bytes != 0) {
    const int yes = 1;  // the port is then chosen by connect(2), which may share it among targets
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof(yes));
    if (source.any.sa_family == AF_INET) source.v4.sin_port = 0;
    else source.v6.sin6_port = 0;
    if (bind(fd, &source.any, source_bytes) != 0)
      errno = 0;  // the address went away; the kernel's choice may still be in the table
  }
  no_delay(fd);
  if (connect(fd, &target.any, bytes) != 0 && errno != EINPROGRESS && errno != EINTR) {
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
  }
  return fd;
}

}  // namespace resil::hang::overlay

namespace resil::hang {

using namespace overlay;

int overlay_listen(Address* own, bool same_host, const char* interface, PortRange ports) {
  choose(own, same_host, interface);
  const Address chosen = *own;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    SocketAddress address;
    own->port = static_cast<uint16_t>(port);
    socklen_t bytes = to_kernel(*own, &address);
    const int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    // No SO_REUSEADDR: nobody else's connections may linger on our port.
    if (fd >= 0 && bind(fd, &address.any, bytes) == 0 && listen(fd, kBacklog) == 0 &&
        getsockname(fd, &address.any, &bytes) == 0 && from_kernel(address, own))
      return fd;
    const int why = errno;
    if (fd >= 0) close(fd);
    *own = chosen;
    errno = why;
    if (why != EADDRINUSE && why != EACCES) break;
  }
  *own = {};
  return -1;
}

}  // namespace resil::hang
