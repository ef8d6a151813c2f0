// SPDX-License-Identifier: Apache-2.0
//
// What a program does with files, standard input and the rest of its surroundings, for replicas_test.py: run alone and
// in parts, it prints the same and leaves the same files.
//
// replicas files|input|world|flip KIND|choice|led TURNS|kinds WHAT|names|restless|ids|strangers|port|fail     SLOW=N:
// part N of the job is late (parts are told by the launcher's rank)

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

// The standard ABI's header leaves Fortran's handles to other functions. Open MPI 6 says -1 of its own ABI.
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
#define MPI_Fint int
#define MPI_Comm_c2f MPI_Comm_toint
#define MPI_Comm_f2c MPI_Comm_fromint
#endif

static int rank, size;

static int job_rank(void) {
  const char* text = getenv("PMIX_RANK");
  if (text == NULL) text = getenv("PMI_RANK");
  return text != NULL ? atoi(text) : 0;
}

/* Said in the order of ranks, by rank 0 at the end: launchers mix lines. */
static char said[8192];
__attribute__((format(printf, 1, 2))) static void say(const char* format, ...) {
  const size_t length = strlen(said);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(said + length, sizeof(said) - length, format, arguments);
  va_end(arguments);
}
static void say_all(void) {
  if (getenv("SAY") != NULL) fputs(said, stderr);
  char* all = rank == 0 ? malloc(sizeof(said) * (size_t)size) : NULL;
  MPI_Gather(said, sizeof(said), MPI_CHAR, all, sizeof(said), MPI_CHAR, 0, MPI_COMM_WORLD);
  for (int i = 0; rank == 0 && i < size; ++i) fputs(all + sizeof(said) * (size_t)i, stdout);
  free(all);
}

/* All ranks of the part, and time for the other part to run ahead. */
static void meet(void) {
  const char* slow = getenv("SLOW");
  const struct timespec pause = {0, 100000000};
  if (slow != NULL && atoi(slow) == job_rank() / size) nanosleep(&pause, NULL);
  MPI_Barrier(MPI_COMM_WORLD);
}

static const char* contents(const char* name) {
  static char texts[8][256];
  static unsigned next;
  char* text = texts[next++ % 8];
  FILE* file = fopen(name, "r");
  if (file == NULL) return errno == ENOENT ? "(none)" : "(error)";
  const size_t bytes = fread(text, 1, sizeof(texts[0]) - 1, file);
  text[bytes] = 0;
  fclose(file);
  for (char* at = text; *at; ++at)
    if (*at == '\n') *at = '/';
  return text;
}

static void put(const char* name, const char* mode, const char* text) {
  FILE* file = fopen(name, mode);
  if (file == NULL) {
    say("%s: %s\n", name, strerror(errno));
    return;
  }
  fputs(text, file);
  fclose(file);
}

static void files(void) {
  char name[64], other[64], text[64];
  struct stat status;
  /* What was there before: read by all, then replaced, by one. */
  say("rank %d reads %s\n", rank, contents("old.txt"));
  meet();
  if (rank == 0) {
    put("old.txt", "w", "replaced\n");
    put("log.txt", "a", "appended\n");
    FILE* file = fopen("both.txt", "r+");
    fputs("XY", file);
    fclose(file);
    say("removed: %d\n", unlink("goes.txt"));
    say("renamed: %d\n", rename("moves.txt", "moved.txt"));
  }
  meet();
  say("rank %d sees %s %s %s %s %s %s\n", rank, contents("old.txt"), contents("log.txt"), contents("both.txt"),
      contents("goes.txt"), contents("moves.txt"), contents("moved.txt"));
  /* A file of each rank in a new directory, read back by the next one. */
  if (rank == 0) {
    say("there already: %d\n", stat("new", &status) == 0);
    say("made: %d\n", mkdir("new", 0755));
    const int again = mkdir("new", 0755);
    say("made again: %d, %d\n", again, errno == EEXIST);
  }
  meet();
  snprintf(name, sizeof(name), "new/of-%d", rank);
  snprintf(text, sizeof(text), "rank %d\n", rank);
  const int made = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (made < 0 || write(made, text, strlen(text)) < 0) say("not made: %s\n", strerror(errno));
  close(made);
  meet();
  snprintf(other, sizeof(other), "new/../new//of-%d", (rank + 1) % size);
  const int exclusive = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644) >= 0;
  say("rank %d: again %d, next %s, there %d\n", rank, exclusive, contents(other), access(other, F_OK));
  meet();
  if (rank == 0) {
    char temporary[] = "new/t-XXXXXX";
    const int file = mkstemp(temporary);
    const int written = file >= 0 && write(file, "x", 1) == 1,
              there = stat(temporary, &status) == 0 && status.st_size == 1;
    say("temporary: %d, %d, gone %d\n", written, there, unlink(temporary));
    put("none/x", "w", "x");
    say("truncated: %d\n", truncate("both.txt", 3));
    say("to %s\n", contents("both.txt"));
    say("folder: %d\n", rmdir("empty"));
    say("there: %d\n", stat("empty", &status) == 0);
    say("linked: %d\n", link("log.txt", "same.txt"));
    say("to %s\n", contents("same.txt"));
    int entries = 0;
    DIR* list = opendir("new");
    while (list != NULL && readdir(list) != NULL) ++entries;
    if (list != NULL) closedir(list);
    say("entries: %d\n", entries - 2);
  }
  meet();
  MPI_File file;
  int value = rank + 1, got = 0;
  MPI_File_open(MPI_COMM_WORLD, "mpi.bin", MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  MPI_File_write_at_all(file, 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_File_sync(file);
  MPI_File_read_at(file, 4 * ((rank + 1) % size), &got, 1, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_close(&file);
  meet();
  const int again =
      MPI_File_open(MPI_COMM_WORLD, "mpi.bin", MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
  say("rank %d: MPI file %d, exclusive again: %d\n", rank, got, again == MPI_SUCCESS);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    const int removed = MPI_File_delete("mpi-old.bin", MPI_INFO_NULL);
    say("MPI removes: %d\n", removed == MPI_SUCCESS);
    say("and again: %d\n", MPI_File_delete("mpi-old.bin", MPI_INFO_NULL) == MPI_SUCCESS);
  }
  meet();
  say("rank %d sees %s\n", rank, contents("mpi-old.bin"));
  fprintf(stderr, "rank %d is through\n", rank);
}

static void input(void) {
  char line[128] = "";
  int lines = 0;
  if (rank == 0)
    while (fgets(line, sizeof(line), stdin) != NULL) ++lines;
  MPI_Bcast(&lines, 1, MPI_INT, 0, MPI_COMM_WORLD);
  MPI_Bcast(line, sizeof(line), MPI_CHAR, 0, MPI_COMM_WORLD);
  say("rank %d: %d lines, the last one %s", rank, lines, line);
  /* What followers have read as well: the job would not end if it were less. */
  if (lines != 1000) MPI_Abort(MPI_COMM_WORLD, 7);
}

static int world_copied, world_deleted;
static int copy(MPI_Comm comm, int keyval, void* extra, void* in, void* out, int* flag) {
  (void)comm, (void)keyval, (void)extra;
  *(void**)out = in;
  *flag = 1;
  ++world_copied;
  return MPI_SUCCESS;
}
static int forget(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  ++world_deleted;
  return MPI_SUCCESS;
}
static int last_words(MPI_Comm comm, int keyval, void* value, void* extra) {
  (void)comm, (void)keyval, (void)value, (void)extra;
  int members = 0, sum = 0, one = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &members); /* the world is there until MPI_COMM_SELF's attributes are gone */
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("last words: %d of %d\n", sum, members);
  return MPI_SUCCESS;
}

static void world(void) {
  int keyval, last, flag, *bound, same, length, members, colour, *universe, got = 0;
  char name[MPI_MAX_OBJECT_NAME];
  MPI_Comm twin, half, node;
  MPI_Group group, part;
  static int value = 42;
  void* found = NULL;
  MPI_Comm_create_keyval(copy, forget, &keyval, NULL);
  MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &value);
  MPI_Comm_dup(MPI_COMM_WORLD, &twin);
  MPI_Comm_get_attr(twin, keyval, &found, &flag);
  say("copied %d %d\n", flag && found == &value, world_copied);
  MPI_Comm_compare(MPI_COMM_WORLD, twin, &same);
  say("the same group %d\n", same == MPI_CONGRUENT);
  MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &same);
  say("identical %d\n", same == MPI_IDENT);
  MPI_Comm_free(&twin);
  MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
  say("deleted %d\n", world_deleted);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
  say("tags %d\n", flag && *bound >= 32767);
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag);
  MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
  say("name %s\n", name);
  MPI_Comm_group(MPI_COMM_WORLD, &group);
  MPI_Group_size(group, &members);
  const int first[1] = {0};
  MPI_Group_incl(group, 1, first, &part);
  MPI_Group_free(&part);
  MPI_Group_free(&group);
  say("group %d\n", members);
  colour = rank % 2;
  MPI_Comm_split(MPI_COMM_WORLD, colour, 0, &half);
  MPI_Comm_size(half, &members);
  say("half %d\n", members);
  MPI_Comm_free(&half);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &members);
  say("node %d\n", members);
  MPI_Comm_free(&node);
  const MPI_Fint fortran = MPI_Comm_c2f(MPI_COMM_WORLD);
  say("handles %d\n", MPI_Comm_f2c(fortran) == MPI_COMM_WORLD);
  MPI_Comm_size(MPI_Comm_f2c(fortran), &members);
  say("by Fortran's handle %d\n", members);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Errhandler handler;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  say("handler %d\n", handler == MPI_ERRORS_RETURN);
  MPI_Errhandler_free(&handler);
  say("refused %d\n", MPI_Send(&got, 1, MPI_INT, size, 0, MPI_COMM_WORLD) != MPI_SUCCESS);
  MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 3, &got, 1, MPI_INT, (rank + size - 1) % size, 3, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  say("rank %d has %d from its left\n", rank, got);
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &last, NULL);
  MPI_Comm_set_attr(MPI_COMM_SELF, last, NULL);
  for (const char* const* variable = (const char* const[]){"OMPI_COMM_WORLD_SIZE", "MPI_LOCALNRANKS", NULL}; *variable;
       ++variable)
    if (getenv(*variable) != NULL) say("%s=%s\n", *variable, getenv(*variable));
}

/* Steps of messages and reductions, all of which depend on each other. FLIP: the job's rank that has a bit flipped
   before what `kind` says is sent in step 10. */
static void flip(const char* kind) {
  double data[64], came[64], sum = 0, all = 0;
  const char* flips = getenv("FLIP");
  const int here = flips != NULL && atoi(flips) == job_rank();
  for (int i = 0; i < 64; ++i) data[i] = rank + i;
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (int step = 0; step < 20; ++step) {
    const int now = here && step == 10;
    if (now && strcmp(kind, "send") == 0) ((unsigned char*)&data[17])[3] ^= 4;
    if (rank % 2 == 0) MPI_Send(data, 64, MPI_DOUBLE, right, 1, MPI_COMM_WORLD);
    MPI_Recv(came, 64, MPI_DOUBLE, left, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank % 2 != 0) MPI_Send(data, 64, MPI_DOUBLE, right, 1, MPI_COMM_WORLD);
    for (int i = 0; i < 64; ++i) data[i] = data[i] * 0.5 + came[63 - i];
    if (now && strcmp(kind, "isend") == 0) ((unsigned char*)&data[17])[3] ^= 4;
    MPI_Request requests[2];
    MPI_Irecv(came, 64, MPI_DOUBLE, left, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(data, 64, MPI_DOUBLE, right, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    sum = 0;
    for (int i = 0; i < 64; ++i) data[i] = data[i] * 0.25 + came[i], sum += data[i];
    if (now && strcmp(kind, "reduce") == 0) ((unsigned char*)&sum)[3] ^= 4;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    data[0] = all / 64;
    if (strcmp(kind, "all") == 0) { /* clocks in the data */
      double times[2] = {MPI_Wtime(), 0};
      struct timespec real;
      clock_gettime(CLOCK_REALTIME, &real);
      times[1] = (double)real.tv_nsec;
      MPI_Bcast(times, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    }
  }
  if (rank == 0) say("%.17g\n", all);
}

/* Rank 0 adds up what comes, in the order in which it comes: in part 1 another one. */
static void choice(void) {
  double sum = 0, one = 0;
  if (rank == 0) {
    for (int i = 1; i < size; ++i) {
      MPI_Recv(&one, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      sum = sum * 3 + one;
    }
  } else {
    const struct timespec pause = {0, (job_rank() / size == 0) == (rank == 1) ? 0 : 300000000};
    one = rank;
    nanosleep(&pause, NULL);
    MPI_Send(&one, 1, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD);
  }
  MPI_Bcast(&sum, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

/* Late by up to 3 ms: in each part another rank, another time. */
static void dawdle(int turn) {
  const unsigned mixed = (unsigned)(job_rank() * 2654435761u + (unsigned)turn * 40503u) >> 7;
  const struct timespec pause = {0, (long)(mixed % 4) * 1000000};
  nanosleep(&pause, NULL);
}

static double together; /* depends on the order in which it all came */
static void take(int from, double value) { together = together * 1.25 + from * 0.375 + value; }

/* Rank 0 takes a message of each other rank, in all ways in which MPI chooses. What it has taken goes to everybody, so
   that a part that has chosen otherwise is seen. */
static void any_receive(int way) {
  enum { kMost = 16 };
  double values[kMost];
  MPI_Request requests[kMost];
  MPI_Status status, statuses[kMost];
  MPI_Message message;
  int index, count, flag, indices[kMost], left = size - 1;
  if (rank != 0) {
    double mine = rank + way;
    dawdle(way);
    MPI_Send(&mine, 1, MPI_DOUBLE, 0, way, MPI_COMM_WORLD);
    return;
  }
  for (int i = 0; i < left; ++i) requests[i] = MPI_REQUEST_NULL;
  const int posts = way == 1 || way == 2 || way == 3 || way == 4 || way == 5;
  for (int i = 0; posts && i < left; ++i)
    MPI_Irecv(&values[i], 1, MPI_DOUBLE, way == 5 ? i + 1 : MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &requests[i]);
  if (way == 6 || way == 7)
    for (int i = 0; i < left; ++i)
      MPI_Recv_init(&values[i], 1, MPI_DOUBLE, MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &requests[i]);
  if (way == 6) MPI_Startall(left, requests);
  for (int i = 0; way == 7 && i < left; ++i) MPI_Start(&requests[i]);
  switch (way) {
    case 0: /* one after the other */
      for (int i = 0; i < left; ++i) {
        MPI_Recv(&values[0], 1, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        take(status.MPI_SOURCE, values[0]);
      }
      break;
    case 1:
    case 5:
    case 7:
      for (int i = 0; i < left; ++i) {
        MPI_Waitany(left, requests, &index, &status);
        take(status.MPI_SOURCE + 8 * index, values[index]);
      }
      break;
    case 2:
      while (left > 0) {
        MPI_Waitsome(size - 1, requests, &count, indices, statuses);
        for (int k = 0; k < count; ++k) take(statuses[k].MPI_SOURCE, values[indices[k]]);
        left -= count;
      }
      break;
    case 3: /* and how often it looked in vain */
      for (int looks = 0; left > 0; ++looks) {
        MPI_Testany(size - 1, requests, &index, &flag, MPI_STATUS_IGNORE);
        if (flag && index != MPI_UNDEFINED) take(index + looks, values[index]), --left;
      }
      break;
    case 4:
      for (int looks = 0; left > 0; ++looks) {
        MPI_Testsome(size - 1, requests, &count, indices, statuses);
        for (int k = 0; k < count; ++k) take(statuses[k].MPI_SOURCE + looks, values[indices[k]]), --left;
      }
      break;
    case 6:
      for (int looks = 1, done = 0; !done; ++looks) {
        MPI_Testall(left, requests, &done, statuses);
        for (int i = 0; done && i < left; ++i) take(statuses[i].MPI_SOURCE + looks, values[i]);
      }
      break;
    case 8:
      for (; left > 0; --left) {
        MPI_Probe(MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &status);
        MPI_Recv(&values[0], 1, MPI_DOUBLE, status.MPI_SOURCE, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        take(status.MPI_SOURCE, values[0]);
      }
      break;
    case 9:
      for (int looks = 0; left > 0; ++looks) {
        MPI_Iprobe(MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &flag, &status);
        if (!flag) continue;
        MPI_Recv(&values[0], 1, MPI_DOUBLE, status.MPI_SOURCE, way, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        take(status.MPI_SOURCE + looks, values[0]);
        --left;
      }
      break;
    case 10:
      for (; left > 0; --left) {
        MPI_Mprobe(MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(&values[0], 1, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
        take(status.MPI_SOURCE, values[0]);
      }
      break;
    case 11:
      for (int looks = 0; left > 0; ++looks) {
        MPI_Improbe(MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &flag, &message, &status);
        if (!flag) continue;
        MPI_Imrecv(&values[0], 1, MPI_DOUBLE, &message, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        take(status.MPI_SOURCE + looks, values[0]);
        --left;
      }
      break;
    case 12: /* each one's Test */
      for (int i = 0; i < left; ++i) {
        MPI_Irecv(&values[i], 1, MPI_DOUBLE, MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &requests[i]);
        for (int looks = 0, done = 0; !done; ++looks) {
          MPI_Request_get_status(requests[i], &flag, &status);
          if (flag) MPI_Test(&requests[i], &done, &status), take(status.MPI_SOURCE + looks, values[i]);
        }
      }
      break;
    case 13:
      for (int i = 0; i < left; ++i) {
        double mine = 1, other = 0;
        MPI_Sendrecv(&mine, 1, MPI_DOUBLE, 0, 99, &other, 1, MPI_DOUBLE, 0, MPI_ANY_TAG, MPI_COMM_SELF, &status);
        MPI_Recv(&values[0], 1, MPI_DOUBLE, MPI_ANY_SOURCE, way, MPI_COMM_WORLD, &status);
        take(status.MPI_SOURCE, values[0] + other);
      }
      break;
    default: break;
  }
  for (int i = 0; i < size - 1; ++i)
    if (requests[i] != MPI_REQUEST_NULL) MPI_Request_free(&requests[i]);
}

static unsigned random_word(int turn) {
  unsigned word = 0;
  if (turn % 3 == 0 && getentropy(&word, sizeof(word)) != 0) abort();
  if (turn % 3 == 1) {
    const int device = open("/dev/urandom", O_RDONLY);
    if (read(device, &word, sizeof(word)) != sizeof(word)) abort();
    close(device);
  }
  if (turn % 3 == 2) {
    FILE* device = fopen("/dev/urandom", "r");
    if (fread(&word, sizeof(word), 1, device) != 1) abort();
    fclose(device);
  }
  return word;
}

static void led(int turns) {
  const char* flips = getenv("FLIP");
  for (int turn = 0; turn < turns; ++turn) {
    for (int way = 0; way < 14; ++way) {
      any_receive(way);
      MPI_Barrier(MPI_COMM_WORLD);
    }
    if (flips != NULL && atoi(flips) == job_rank() && turn == turns - 1) ((unsigned char*)&together)[4] ^= 4;
    double sent[2] = {together, random_word(turn)};
    MPI_Bcast(sent, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) say("%d: %s\n", turn, together != 0 ? "taken" : "nothing");
  }
}

/* Data by persistent requests, nonblocking and persistent collectives. `what`: where FLIP's rank has a bit flipped. */
static void kinds(const char* what) {
  double out[8], in[8], all[8], big[8 * 64];
  MPI_Request requests[2], sum;
  const char* flips = getenv("FLIP");
  const int here = flips != NULL && atoi(flips) == job_rank();
  const int right = (rank + 1) % size, left = (rank + size - 1) % size;
  for (int i = 0; i < 8; ++i) out[i] = rank + i;
  MPI_Send_init(out, 8, MPI_DOUBLE, right, 3, MPI_COMM_WORLD, &requests[0]);
  MPI_Recv_init(in, 8, MPI_DOUBLE, left, 3, MPI_COMM_WORLD, &requests[1]);
  for (int step = 0; step < 6; ++step) {
    const int now = here && step == 3;
    if (now && strcmp(what, "start") == 0) ((unsigned char*)&out[5])[3] ^= 4;
    MPI_Startall(2, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (now && strcmp(what, "ireduce") == 0) ((unsigned char*)&in[5])[3] ^= 4;
    MPI_Iallreduce(in, all, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &sum);
    MPI_Wait(&sum, MPI_STATUS_IGNORE);
    MPI_Iallgather(all, 8, MPI_DOUBLE, big, 8, MPI_DOUBLE, MPI_COMM_WORLD, &sum);
    MPI_Wait(&sum, MPI_STATUS_IGNORE);
    for (int i = 0; i < 8; ++i) out[i] = all[i] * 0.5 + big[i];
  }
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}

/* The first word of a part differs, and all that follow: a program whose result is another one each time. */
static void restless(void) {
  double value = 0, sum = 0;
  struct timespec now;
  for (int step = 0; step < 200; ++step) {
    if (step == 0) syscall(SYS_clock_gettime, CLOCK_REALTIME, &now); /* without libc: nobody sees it */
    value = value * 0.5 + (double)now.tv_nsec + rank;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    value = sum / size;
  }
}

/* Who sends depends on a process id, and rank 0 has a receive pending for it. */
static void ids(void) {
  double value = 1;
  MPI_Request request = MPI_REQUEST_NULL;
  const int own = (int)getpid() % 2, from = 1 + (job_rank() / size + 0 * own) % (size - 1);
  if (rank == 0) MPI_Irecv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, &request);
  if (rank == from) MPI_Send(&value, 1, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Rank 0 is sent something by whom its part likes: the leading one's choice does not come in the others. */
static void strangers(void) {
  double value = 1;
  const int from = 1 + job_rank() / size % (size - 1);
  if (rank == from) MPI_Send(&value, 1, MPI_DOUBLE, 0, 4, MPI_COMM_WORLD);
  if (rank == 0) MPI_Recv(&value, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Who runs where, as rank 0 would print it. */
static void names(void) {
  char processor[MPI_MAX_PROCESSOR_NAME] = "", host[64] = "";
  struct utsname system;
  int length;
  MPI_Get_processor_name(processor, &length);
  gethostname(host, sizeof(host));
  uname(&system);
  say("rank %d: %s %d %s %s\n", rank, processor, length == (int)strlen(processor), host, system.nodename);
}

int main(int argc, char** argv) {
  const char* scene = argc > 1 ? argv[1] : "";
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(scene, "files") == 0) {
    files();
  } else if (strcmp(scene, "input") == 0) {
    input();
  } else if (strcmp(scene, "world") == 0) {
    world();
  } else if (strcmp(scene, "flip") == 0) {
    flip(argv[2]);
  } else if (strcmp(scene, "choice") == 0) {
    choice();
  } else if (strcmp(scene, "led") == 0) {
    led(atoi(argv[2]));
  } else if (strcmp(scene, "kinds") == 0) {
    kinds(argv[2]);
  } else if (strcmp(scene, "names") == 0) {
    names();
  } else if (strcmp(scene, "restless") == 0) {
    restless();
  } else if (strcmp(scene, "ids") == 0) {
    ids();
  } else if (strcmp(scene, "strangers") == 0) {
    strangers();
  } else if (strcmp(scene, "port") == 0) {
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm with;
    MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &with);
  } else if (strcmp(scene, "fail") == 0) { /* one part alone */
    if (job_rank() / size == 1 && rank == 0) {
      fprintf(stderr, "this part has failed\n");
      MPI_Abort(MPI_COMM_WORLD, 5);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
  say_all();
  MPI_Finalize();
  return 0;
}
