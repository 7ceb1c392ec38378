// List the regular files of a folder with their sizes and times, or their digest, without the GIL.
//
// Entries that need a decision (links, folders, pipes, names that are not ASCII) are only named: the caller looks at
// each of them.
#pragma once

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "python_scans.h"

struct FolderEntry {
  char *name;
  int64_t size, mtime_ns;
  bool is_file;
};

struct FolderEntries {
  FolderEntry *entries;
  int64_t count, room;
};

static int64_t mtime_of(const struct stat &status) {
#if defined(__APPLE__)
  const struct timespec &time = status.st_mtimespec;
#else
  const struct timespec &time = status.st_mtim;
#endif
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static bool is_ascii(const char *name) {
  for (; *name; name++)
    if ((unsigned char)*name >= 128) return false;
  return true;
}

static bool add_entry(FolderEntries *folder, const FolderEntry &entry) {
  if (folder->count == folder->room) {
    int64_t room = folder->room ? 2 * folder->room : 256;
    void *entries = realloc(folder->entries, (size_t)room * sizeof(FolderEntry));
    if (!entries) return false;
    folder->entries = (FolderEntry *)entries;
    folder->room = room;
  }
  folder->entries[folder->count] = entry;
  return (folder->entries[folder->count].name = strdup(entry.name)) && ++folder->count;
}

// Read all entries of a folder, and return 0 or the number of an error.
static int read_folder(const char *path, FolderEntries *folder) {
  DIR *directory = opendir(path);
  if (!directory) return errno;
  int error = 0;
  for (;;) {
    errno = 0;
    struct dirent *read = readdir(directory);
    if (!read) {
      error = errno;
      break;
    }
    if (!strcmp(read->d_name, ".") || !strcmp(read->d_name, "..")) continue;
    FolderEntry entry = {read->d_name, 0, 0, false};
    struct stat status;
    bool may_be_file = read->d_type == DT_REG || read->d_type == DT_UNKNOWN;
    if (may_be_file && is_ascii(entry.name) &&
        !fstatat(dirfd(directory), entry.name, &status, AT_SYMLINK_NOFOLLOW) && S_ISREG(status.st_mode))
      entry = {entry.name, (int64_t)status.st_size, mtime_of(status), true};
    else if (!fstatat(dirfd(directory), entry.name, &status, 0))
      entry = {entry.name, (int64_t)status.st_size, mtime_of(status), false};
    if (!add_entry(folder, entry)) {
      error = ENOMEM;
      break;
    }
  }
  closedir(directory);
  return error;
}

static int by_name(const void *one, const void *other) {
  return strcmp(((const FolderEntry *)one)->name, ((const FolderEntry *)other)->name);
}

static void free_entries(FolderEntries *folder) {
  for (int64_t index = 0; index < folder->count; index++) free(folder->entries[index].name);
  free(folder->entries);
}

static bool append_new(PyObject *list, PyObject *item) {
  bool is_done = item && !PyList_Append(list, item);
  Py_XDECREF(item);
  return is_done;
}

// Return the files as a list of (name, size, mtime_ns), sorted by name, and the names of other entries; null after an
// exception.
static PyObject *list_of(const FolderEntries &folder) {
  PyObject *files = PyList_New(0), *others = PyList_New(0);
  bool is_done = files && others;
  for (int64_t index = 0; is_done && index < folder.count; index++) {
    const FolderEntry &entry = folder.entries[index];
    if (entry.is_file)
      is_done = append_new(files, Py_BuildValue("sLL", entry.name, (long long)entry.size, (long long)entry.mtime_ns));
    else
      is_done = append_new(others, PyUnicode_DecodeFSDefault(entry.name));
  }
  PyObject *both = is_done ? PyTuple_Pack(2, files, others) : nullptr;
  Py_XDECREF(files);
  Py_XDECREF(others);
  return both;
}

// List a folder; see `native.Kernels`.
static PyObject *list_folder(PyObject *, PyObject *path) {
  char *text = PyBytes_AsString(path);
  if (!text) return nullptr;
  FolderEntries folder = {};
  int error;
  Py_BEGIN_ALLOW_THREADS
  error = read_folder(text, &folder);
  if (folder.count) qsort(folder.entries, (size_t)folder.count, sizeof(FolderEntry), by_name);
  Py_END_ALLOW_THREADS
  PyObject *listed = nullptr;
  if (error) {
    errno = error;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, text);
  } else {
    listed = list_of(folder);
  }
  free_entries(&folder);
  return listed;
}

static uint64_t mixed(uint64_t digest, uint64_t word) {
  digest = (digest ^ word ^ (digest >> 32)) * 0x3C79AC492BA7B653;
  return digest ^ (digest >> 29);
}

// Return a number of 64 bits that changes with name, size and time of any entry; see `native.Kernels`.
static PyObject *digest_folder(PyObject *, PyObject *path) {
  char *text = PyBytes_AsString(path);
  if (!text) return nullptr;
  FolderEntries folder = {};
  uint64_t digest = 0;
  int error;
  Py_BEGIN_ALLOW_THREADS
  error = read_folder(text, &folder);
  if (folder.count) qsort(folder.entries, (size_t)folder.count, sizeof(FolderEntry), by_name);
  for (int64_t index = 0; index < folder.count; index++) {
    const FolderEntry &entry = folder.entries[index];
    for (const char *letter = entry.name; *letter; letter++)
      digest = (digest ^ (unsigned char)*letter) * 0x100000001B3;
    digest = mixed(mixed(digest, (uint64_t)entry.size), (uint64_t)entry.mtime_ns);
  }
  Py_END_ALLOW_THREADS
  free_entries(&folder);
  if (error) {
    errno = error;
    return PyErr_SetFromErrnoWithFilename(PyExc_OSError, text);
  }
  return PyLong_FromUnsignedLongLong(digest);
}
