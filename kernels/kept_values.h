// The type `Kept`: the records of values whose memory is kept, and the common case of adding a value. Everything else,
// such as copies and eviction when memory is short, is in `agents/core/retention.py`.
#pragma once

#include "python_scans.h"

struct Kept {
  PyObject_HEAD
  PyObject *values;      // mapping of slot id to (memory, version, whether it is a copy, storage, weak reference)
  PyObject *identities;  // dict of the id of a tensor to its slot id
  PyObject *copied;      // set of the slot ids whose values are copied
  PyObject *storages;    // dict of a storage to (number of values in it, its size in bytes)
  PyObject *hold;        // function of a tensor that returns (memory, storage, size in bytes)
  long long bytes, budget;
};

enum { KEPT_REFERENCE = 4 };  // index in a value

static int kept_visit(PyObject *self, visitproc visit, void *arg) {
  Kept *kept = (Kept *)self;
  Py_VISIT(kept->values);
  Py_VISIT(kept->identities);
  Py_VISIT(kept->copied);
  Py_VISIT(kept->storages);
  Py_VISIT(kept->hold);
  Py_VISIT(Py_TYPE(self));
  return 0;
}

static int kept_clear(PyObject *self) {
  Kept *kept = (Kept *)self;
  Py_CLEAR(kept->values);
  Py_CLEAR(kept->identities);
  Py_CLEAR(kept->copied);
  Py_CLEAR(kept->storages);
  Py_CLEAR(kept->hold);
  return 0;
}

static void kept_free(PyObject *self) { free_tracked(self, kept_clear); }

static int kept_init(PyObject *self, PyObject *arguments, PyObject *) {
  Kept *kept = (Kept *)self;
  PyObject *values, *identities, *copied, *storages, *hold;
  if (!PyArg_ParseTuple(arguments, "OOOOOL", &values, &identities, &copied, &storages, &hold, &kept->budget)) return -1;
  if (!PyDict_Check(values) || !PyDict_Check(identities) || !PySet_Check(copied) || !PyDict_Check(storages) ||
      !PyCallable_Check(hold)) {
    PyErr_SetString(PyExc_TypeError, "three dicts are needed, a set and a function");
    return -1;
  }
  PyObject *given[] = {values, identities, copied, storages, hold};
  for (PyObject *each : given) Py_INCREF(each);
  kept_clear(self);
  kept->values = values;
  kept->identities = identities;
  kept->copied = copied;
  kept->storages = storages;
  kept->hold = hold;
  kept->bytes = 0;
  return 0;
}

// Whether a tensor is in the records. The identity of one that is gone may have been reused.
static bool is_kept(const Kept *kept, PyObject *identity, PyObject *tensor) {
  PyObject *slot_id = PyDict_GetItemWithError(kept->identities, identity);
  PyObject *value = slot_id ? PyObject_GetItem(kept->values, slot_id) : nullptr;
  PyObject *reference = value ? PyTuple_GetItem(value, KEPT_REFERENCE) : nullptr;
  PyObject *referent = reference ? PyObject_CallFunctionObjArgs(reference, nullptr) : nullptr;
  Py_XDECREF(value);
  Py_XDECREF(referent);  // the caller holds the tensor
  return referent == tensor;
}

// Whether there is no record of a slot or a tensor, so that keeping it only adds one entry.
static bool is_new(const Kept *kept, PyObject *slot_id, PyObject *identity, PyObject *tensor) {
  return PySequence_Contains(kept->values, slot_id) == 0 && PySet_Contains(kept->copied, slot_id) == 0 &&
         !is_kept(kept, identity, tensor) && !PyErr_Occurred();
}

// Count a value in a storage; returns false without changes if the memory budget is exceeded.
static bool count_in(Kept *kept, PyObject *storage, PyObject *size) {
  PyObject *counted = PyDict_GetItemWithError(kept->storages, storage);
  int64_t values = counted ? PyLong_AsLongLong(PyTuple_GetItem(counted, 0)) : 0;
  int64_t bytes = counted ? 0 : PyLong_AsLongLong(size);
  if (PyErr_Occurred() || kept->bytes > kept->budget - bytes) return false;
  PyObject *number = PyLong_FromLongLong(values + 1);
  PyObject *entry = number ? PyTuple_Pack(2, number, counted ? PyTuple_GetItem(counted, 1) : size) : nullptr;
  bool is_counted = entry && !PyDict_SetItem(kept->storages, storage, entry);
  Py_XDECREF(entry);
  Py_XDECREF(number);
  if (is_counted) kept->bytes += bytes;
  return is_counted;
}

// Keep the value of a slot without records; returns false if that is not possible, perhaps with an exception.
static bool keep(Kept *kept, PyObject *slot_id, PyObject *identity, PyObject *version, PyObject *tensor) {
  PyObject *held = PyObject_CallFunctionObjArgs(kept->hold, tensor, nullptr);
  PyObject *reference = nullptr, *value = nullptr;
  if (held && PyTuple_Check(held) && PyTuple_Size(held) == 3) {
    PyObject *storage = PyTuple_GetItem(held, 1);
    reference = PyWeakref_NewRef(tensor, nullptr);
    value = reference ? PyTuple_Pack(5, PyTuple_GetItem(held, 0), version, Py_False, storage, reference) : nullptr;
    if (value && !count_in(kept, storage, PyTuple_GetItem(held, 2))) Py_CLEAR(value);
  }
  bool is_done = value && !PyObject_SetItem(kept->values, slot_id, value) &&
                 !PyDict_SetItem(kept->identities, identity, slot_id);
  Py_XDECREF(value);
  Py_XDECREF(reference);
  Py_XDECREF(held);
  return is_done;
}

static PyObject *kept_begin(PyObject *self, PyObject *values) {
  if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "a dict is needed");
  Kept *kept = (Kept *)self;
  PyObject *before = kept->values;
  Py_INCREF(values);
  kept->values = values;
  Py_XDECREF(before);
  PyDict_Clear(kept->identities);
  Py_RETURN_NONE;
}

static PyMethodDef KEPT_METHODS[] = {
    {"begin", kept_begin, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

static PyMemberDef KEPT_MEMBERS[] = {
    {"bytes", T_LONGLONG, offsetof(Kept, bytes), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

static PyType_Slot KEPT_SLOTS[] = {
    {Py_tp_init, (void *)kept_init},       {Py_tp_dealloc, (void *)kept_free},    {Py_tp_methods, KEPT_METHODS},
    {Py_tp_members, KEPT_MEMBERS},         {Py_tp_new, (void *)PyType_GenericNew}, {Py_tp_traverse, (void *)kept_visit},
    {Py_tp_clear, (void *)kept_clear},     {0, nullptr},
};

// Created with the module.
static PyTypeObject *kept_type = nullptr;

static PyType_Spec KEPT = {"tensight.tensors._kernels.Kept", sizeof(Kept), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                           KEPT_SLOTS};
