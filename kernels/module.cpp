// The extension module `tensight.tensors._kernels`: the kernels of the processor's best instruction set.

#include "folders.h"
#include "instances.h"
#include "interface.h"
#include "npy_files.h"
#include "python_rows.h"
#include "python_scans.h"

#define KERNELS_OF(name) KERNELS_##name
#define DECLARE(name) extern const Kernels KERNELS_OF(name);
#define ADDRESS(name) &KERNELS_OF(name),
INSTRUCTION_SETS(DECLARE)

// The best last.
static const Kernels *const BUILT[] = {INSTRUCTION_SETS(ADDRESS)};
static const int BUILT_COUNT = sizeof BUILT / sizeof BUILT[0];

static PyObject *scan(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[6];
  if (!read_integers(given, count, 6, number) || !is_kind(number[0])) return nullptr;
  Elements elements = {(Kind)number[0], (const uint8_t *)number[1], number[2], number[3]};
  Reals *reals = (Reals *)number[4];
  Counts *counts = (Counts *)number[5];
  clear(reals, counts);
  if (elements.count > HOLDING) {
    Py_BEGIN_ALLOW_THREADS
    chosen->scan(elements, reals, counts, nullptr, 0);
    Py_END_ALLOW_THREADS
  } else {
    chosen->scan(elements, reals, counts, nullptr, 0);
  }
  Py_RETURN_NONE;
}

static PyObject *scan_ranges(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[8];
  if (!read_integers(given, count, 8, number) || !is_kind(number[0])) return nullptr;
  Elements elements = {(Kind)number[0], (const uint8_t *)number[1], number[2], number[3]};
  Reals *reals = (Reals *)number[4];
  Counts *counts = (Counts *)number[5];
  const Range *ranges = (const Range *)number[6];
  clear(reals, counts);
  for (int64_t range = 0; range < number[7]; range++) ((int64_t *)(counts + 1))[range] = 0;
  Py_BEGIN_ALLOW_THREADS
  chosen->scan(elements, reals, counts, ranges, number[7]);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *scan_shared(PyObject *, PyObject *const *given, Py_ssize_t count) {
  constexpr Py_ssize_t BEFORE_AXES = 9;
  int64_t number[BEFORE_AXES + 2 * MOST_AXES];
  Axes axes;
  if (count < BEFORE_AXES || count > BEFORE_AXES + 2 * MOST_AXES || (count - BEFORE_AXES) % 2)
    return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 9 are needed, and 2 for each axis", count);
  if (!read_integers(given, count, count, number) || !is_kind(number[3])) return nullptr;
  read_axes(number + BEFORE_AXES, count - BEFORE_AXES, &axes);
  if (number[5] < 0 || number[5] > MOST_PARTS * PART)
    return PyErr_Format(PyExc_ValueError, "%lld elements cannot be shared out", (long long)number[5]);
  Elements elements = {(Kind)number[3], (const uint8_t *)number[4], number[5], number[6]};
  scan_parts(team_at(number), elements, axes, (Reals *)number[7], (Counts *)number[8]);
  Py_RETURN_NONE;
}

static PyObject *compare(PyObject *, PyObject *const *given, Py_ssize_t count) {
  if (count != 7) return PyErr_Format(PyExc_TypeError, "%zd arguments were given, 7 are needed", count);
  int64_t number[6];
  if (!read_integers(given, 6, 6, number) || !is_kind(number[0]) || !is_kind(number[2])) return nullptr;
  double atol = PyFloat_AsDouble(given[6]);
  if (PyErr_Occurred()) return nullptr;
  Change *change = (Change *)number[5];
  *change = {};
  Py_BEGIN_ALLOW_THREADS
  chosen->compare((Kind)number[0], (const uint8_t *)number[1], (Kind)number[2], (const uint8_t *)number[3], number[4],
                  atol, change);
  Py_END_ALLOW_THREADS
  Py_RETURN_NONE;
}

static PyObject *has_non_finite(PyObject *, PyObject *const *given, Py_ssize_t count) {
  int64_t number[6];
  if (!read_integers(given, count, 6, number) || !is_kind(number[0])) return nullptr;
  return PyBool_FromLong(
      find_non_finite(team_at(number + 3), (Kind)number[0], (const uint8_t *)number[1], number[2]));
}

static PyObject *instruction_sets(PyObject *, PyObject *) {
  PyObject *names = PyList_New(0);
  if (!names) return nullptr;
  for (int i = 0; i < BUILT_COUNT; i++) {
    if (!BUILT[i]->is_supported()) continue;
    PyObject *name = PyUnicode_FromString(BUILT[i]->name);
    if (!name || PyList_Append(names, name)) return nullptr;
    Py_DECREF(name);
  }
  return names;
}

static PyObject *choose(PyObject *, PyObject *wanted) {
  for (int i = BUILT_COUNT - 1; i >= 0; i--) {
    if (!BUILT[i]->is_supported()) continue;
    if (wanted == Py_None || PyUnicode_CompareWithASCIIString(wanted, BUILT[i]->name) == 0) {
      chosen = BUILT[i];
      return PyUnicode_FromString(chosen->name);
    }
  }
  return PyErr_Format(PyExc_ValueError, "this processor, or this build, has no kernels for %S", wanted);
}

static PyMethodDef METHODS[] = {
    {"scan", (PyCFunction)(void (*)(void))scan, METH_FASTCALL, nullptr},
    {"scan_ranges", (PyCFunction)(void (*)(void))scan_ranges, METH_FASTCALL, nullptr},
    {"scan_shared", (PyCFunction)(void (*)(void))scan_shared, METH_FASTCALL, nullptr},
    {"scan_files", (PyCFunction)(void (*)(void))scan_files, METH_FASTCALL, nullptr},
    {"list_folder", list_folder, METH_O, nullptr},
    {"digest_folder", digest_folder, METH_O, nullptr},
    {"compare", (PyCFunction)(void (*)(void))compare, METH_FASTCALL, nullptr},
    {"has_non_finite", (PyCFunction)(void (*)(void))has_non_finite, METH_FASTCALL, nullptr},
    {"instances", (PyCFunction)(void (*)(void))instances, METH_FASTCALL, nullptr},
    {"instruction_sets", instruction_sets, METH_NOARGS, nullptr},
    {"choose", choose, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static int set_up(PyObject *module) {
  for (int i = 0; i < BUILT_COUNT; i++)
    if (BUILT[i]->is_supported()) chosen = BUILT[i];
  if (!chosen) {
    PyErr_SetString(PyExc_ImportError, "this processor lacks the instructions of every kernel in this build");
    return -1;
  }
  if (!make_names()) return -1;
  observer_type = (PyTypeObject *)PyType_FromSpec(&OBSERVER);
  kept_type = observer_type ? (PyTypeObject *)PyType_FromSpec(&KEPT) : nullptr;
  PyObject *rows = kept_type ? PyType_FromSpec(&ROWS) : nullptr;
  if (!rows || PyModule_AddObjectRef(module, "Kept", (PyObject *)kept_type)) return -1;
  if (PyModule_AddObject(module, "Rows", rows)) {
    Py_DECREF(rows);
    return -1;
  }
  return 0;
}

static PyModuleDef_Slot SLOTS[] = {{Py_mod_exec, (void *)set_up}, {0, nullptr}};
static PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_kernels", nullptr, 0, METHODS, SLOTS, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit__kernels(void) { return PyModuleDef_Init(&MODULE); }
