// SPDX-License-Identifier: Apache-2.0
//
// See pmi1.h. May touch PMI_FD and nothing else. Measured with hydra 4.0.2: a second "cmd=init" is answered like the
// first; a put is visible to all once the MPI library has been through its own barrier in MPI_Init; a get of a missing
// key is answered at once with rc=-1.
#include "shim/presence/pmi1.h"

#include <sys/socket.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "shim/config/config_parse.h"

namespace resil {
namespace {

constexpr size_t kLine = 2048;  // longest answer: hydra's values end at 1,024 bytes

struct Session {
  int fd;
  bool ready;  ///< init and the name are done
  bool broken;  ///< an answer did not come; nothing more is sent
  char space[256];
};
Session session;

bool write_all(const char* data, size_t size) {
  while (size) {
    // Not write: hydra may be gone, and the application must not get a SIGPIPE for our sake.
    ssize_t written = send(session.fd, data, size, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    data += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

/// Reads exactly one line: looks first and takes what belongs to it; a byte too many would be missing in the MPI
/// library's next answer.
bool read_line(char* line, size_t size) {
  for (size_t used = 0; used + 1 < size;) {
    ssize_t seen = recv(session.fd, line + used, size - 1 - used, MSG_PEEK);
    if (seen < 0 && errno == EINTR) continue;
    if (seen <= 0) return false;
    const void* end = memchr(line + used, '\n', static_cast<size_t>(seen));
    size_t wanted = static_cast<size_t>(seen);
    if (end) wanted = static_cast<size_t>(static_cast<const char*>(end) - line) + 1 - used;
    ssize_t got;
    do got = recv(session.fd, line + used, wanted, 0);
    while (got < 0 && errno == EINTR);
    if (got != static_cast<ssize_t>(wanted)) return false;
    used += wanted;
    if (end) {
      line[used - 1] = 0;
      return true;
    }
  }
  return false;
}

/// Asks and takes the answer, which must begin with "cmd=`command`".
bool ask(const char* question, const char* command, char* answer, size_t size) {
  if (session.broken) return false;
  if (!write_all(question, strlen(question)) || !read_line(answer, size)) {
    session.broken = true;
    return false;
  }
  size_t length = strlen(command);
  return strncmp(answer, "cmd=", 4) == 0 && strncmp(answer + 4, command, length) == 0 && answer[4 + length] == ' ';
}

/// The value of " name=" in an answer.
bool field(const char* answer, const char* name, char* value, size_t size) {
  size_t length = strlen(name);
  for (const char* at = strchr(answer, ' '); at; at = strchr(at + 1, ' ')) {
    if (strncmp(at + 1, name, length) != 0 || at[1 + length] != '=') continue;
    const char* start = at + length + 2;
    size_t count = strcspn(start, " ");
    if (count >= size) return false;
    memcpy(value, start, count);
    value[count] = 0;
    return true;
  }
  return false;
}

bool good_rc(const char* answer) {
  char rc[16];
  return field(answer, "rc", rc, sizeof rc) && strcmp(rc, "0") == 0;
}

bool open_session() {
  if (session.ready) return true;
  if (session.broken || !pmi1_available()) return false;
  session.fd = atoi(getenv("PMI_FD"));
  char answer[kLine];
  if (!ask("cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", answer, sizeof answer) ||
      !good_rc(answer) || !ask("cmd=get_my_kvsname\n", "my_kvsname", answer, sizeof answer) ||
      !field(answer, "kvsname", session.space, sizeof session.space))
    return false;
  session.ready = true;
  return true;
}

/// Values travel as one word: all but letters, digits and a few marks as %XX.
void escape(const char* value, char* word) {
  for (; *value; ++value) {
    unsigned char c = static_cast<unsigned char>(*value);
    if ((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || strchr("._-:,/+", c)) {
      *word++ = static_cast<char>(c);
    } else {
      *word++ = '%';
      *word++ = "0123456789ABCDEF"[c >> 4];
      *word++ = "0123456789ABCDEF"[c & 15];
    }
  }
  *word = 0;
}

int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : 0; }

bool unescape(const char* word, char* value, size_t size) {
  size_t used = 0;
  for (; *word && used + 1 < size; ++word) {
    char c = *word;
    if (c == '%' && word[1] && word[2]) {
      c = static_cast<char>(hex(word[1]) * 16 + hex(word[2]));
      word += 2;
    }
    value[used++] = c;
  }
  value[used] = 0;
  return *word == 0;
}

bool publish(const LaunchIdentity& identity, const char*, const char* value) {
  if (identity.rank < 0 || strlen(value) >= kPresenceBytes || !open_session()) return false;
  char word[3 * kPresenceBytes + 1], question[kLine], answer[kLine];
  escape(value, word);
  Text text(question, sizeof question);
  text.add("cmd=put kvsname=").add(session.space).add(" key=resil-").add(int64_t{identity.rank});
  text.add(" value=").add(word);
  strcat(question, "\n");
  return ask(question, "put_result", answer, sizeof answer) && good_rc(answer);
}

bool get(int rank, char* value, size_t size) {
  if (!session.ready) return false;
  char question[512], answer[kLine], word[3 * kPresenceBytes + 1];
  Text(question, sizeof question).add("cmd=get kvsname=").add(session.space).add(" key=resil-").add(int64_t{rank});
  strcat(question, "\n");
  return ask(question, "get_result", answer, sizeof answer) && good_rc(answer) &&
         field(answer, "value", word, sizeof word) && unescape(word, value, size);
}

void release() { session = {}; }  // the descriptor and the goodbye belong to the MPI library

}  // namespace

bool pmi1_available() {
  const char* fd = getenv("PMI_FD");
  int64_t number;
  return fd && getenv("MPI_LOCALNRANKS") && getenv("PMI_RANK") && parse_integer(slice_of(fd), &number) && number > 2 &&
         number < 1 << 20;
}

bool pmi1_kvs_name(char* name, size_t size) {
  if (!open_session() || strlen(session.space) >= size) return false;
  strcpy(name, session.space);
  return true;
}

void pmi1_abort(int status) {
  if (!open_session()) return;
  char command[64];
  Text(command, sizeof command).add("cmd=abort exitcode=").add(int64_t{status});
  strcat(command, "\n");
  write_all(command, strlen(command));  // not answered
}

const Carrier kPmi1Carrier = {"PMI-1", publish, nullptr, get, release, nullptr};

}  // namespace resil
