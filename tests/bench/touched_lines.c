// SPDX-License-Identifier: Apache-2.0
//
// Reads a trace of valgrind's lackey (--trace-mem=yes) from standard input: touched_lines FACTS ROUND_BEGINS KIND_ENDS,
// the addresses of these two variables of instructions.c in hexadecimal. Prints for each kind the cache lines of 64
// bytes that libresil.so's own code touched in a round, and those of them that it wrote: the least of the rounds; the
// stack's are left out. FACTS is read at the first round, since the program writes it before.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMost = 1 << 16 };
static unsigned long touched[kMost], written[kMost];

static unsigned long code_from, code_to, stack_from, stack_to;

static int read_facts(const char* path) {
  char name[16];
  unsigned long from, to;
  FILE* facts = fopen(path, "r");
  if (!facts) return 0;
  while (fscanf(facts, "%15s %lx %lx", name, &from, &to) == 3) {
    if (!strcmp(name, "code")) code_from = from, code_to = to;
    if (!strcmp(name, "stack")) stack_from = from, stack_to = to;
  }
  fclose(facts);
  return code_to && stack_to;
}

static void add(unsigned long* set, int* size, unsigned long line) {
  for (int i = 0; i < *size; i++)
    if (set[i] == line) return;
  if (*size == kMost) exit(3);
  set[(*size)++] = line;
}

int main(int argc, char** argv) {
  char line[256];
  int counting = 0, own = 0, touched_now = 0, written_now = 0, least = -1, least_written = -1;
  if (argc != 4) return 2;
  const unsigned long begins = strtoul(argv[2], NULL, 16), ends = strtoul(argv[3], NULL, 16);
  while (fgets(line, sizeof line, stdin)) {
    if (line[0] != 'I' && line[0] != ' ') continue;
    char* rest;
    const unsigned long address = strtoul(line + 3, &rest, 16), bytes = *rest == ',' ? strtoul(rest + 1, NULL, 10) : 0;
    if (line[0] == 'I') {
      own = counting && address >= code_from && address < code_to;
    } else if (line[1] == 'S' && (address == begins || address == ends)) {
      if (!code_to && !read_facts(argv[1])) return 1;
      if (counting && (least < 0 || touched_now < least)) least = touched_now;
      if (counting && (least_written < 0 || written_now < least_written)) least_written = written_now;
      counting = address == begins, touched_now = written_now = 0;
      if (address == ends) {
        printf("%d %d\n", least, least_written);
        least = least_written = -1;
      }
    } else if (own && bytes && (address < stack_from || address >= stack_to)) {
      for (unsigned long at = address / 64; at <= (address + bytes - 1) / 64; at++) {
        add(touched, &touched_now, at);
        if (line[1] != 'L') add(written, &written_now, at);
      }
    }
  }
  return 0;
}
