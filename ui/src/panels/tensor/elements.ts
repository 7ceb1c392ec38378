/** A complex number. */
export interface Complex {
  real: number
  imaginary: number
}

/** One element without loss of precision: 64-bit integers are not converted to doubles. */
export type Element = number | bigint | boolean | Complex

/** Elements of a response in the `raw` format, read in place. */
export interface Elements {
  length: number
  at: (index: number) => Element
}

type Reader = (bytes: DataView, index: number) => Element

const halfOf = (bits: number): number => {
  const sign = bits & 0x8000 ? -1 : 1
  const exponent = (bits >> 10) & 0x1f
  const fraction = bits & 0x3ff
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

const word = new DataView(new ArrayBuffer(4))
const brainOf = (bits: number): number => {
  word.setUint32(0, bits << 16)
  return word.getFloat32(0)
}

/** Decode float8_e4m3fn, which has no infinities; only the magnitude with all bits set is NaN. */
const e4m3Of = (bits: number): number => {
  const sign = bits & 0x80 ? -1 : 1
  const exponent = (bits >> 3) & 0xf
  const fraction = bits & 0x7
  if (exponent === 15 && fraction === 7) return NaN
  if (exponent === 0) return sign * fraction * 2 ** -9
  return sign * (1 + fraction / 8) * 2 ** (exponent - 7)
}

const READERS: Record<string, { width: number; read: Reader }> = {
  float64: { width: 8, read: (bytes, at) => bytes.getFloat64(at, true) },
  float32: { width: 4, read: (bytes, at) => bytes.getFloat32(at, true) },
  float16: { width: 2, read: (bytes, at) => halfOf(bytes.getUint16(at, true)) },
  bfloat16: { width: 2, read: (bytes, at) => brainOf(bytes.getUint16(at, true)) },
  float8_e4m3fn: { width: 1, read: (bytes, at) => e4m3Of(bytes.getUint8(at)) },
  float8_e5m2: { width: 1, read: (bytes, at) => halfOf(bytes.getUint8(at) << 8) },
  int64: { width: 8, read: (bytes, at) => bytes.getBigInt64(at, true) },
  uint64: { width: 8, read: (bytes, at) => bytes.getBigUint64(at, true) },
  int32: { width: 4, read: (bytes, at) => bytes.getInt32(at, true) },
  uint32: { width: 4, read: (bytes, at) => bytes.getUint32(at, true) },
  int16: { width: 2, read: (bytes, at) => bytes.getInt16(at, true) },
  uint16: { width: 2, read: (bytes, at) => bytes.getUint16(at, true) },
  int8: { width: 1, read: (bytes, at) => bytes.getInt8(at) },
  uint8: { width: 1, read: (bytes, at) => bytes.getUint8(at) },
  bool: { width: 1, read: (bytes, at) => bytes.getUint8(at) !== 0 },
  complex64: {
    width: 8,
    read: (bytes, at) => ({ real: bytes.getFloat32(at, true), imaginary: bytes.getFloat32(at + 4, true) }),
  },
  complex128: {
    width: 16,
    read: (bytes, at) => ({ real: bytes.getFloat64(at, true), imaginary: bytes.getFloat64(at + 8, true) }),
  },
}

/** Read the elements of a response; throw an error for a type that a browser cannot represent. */
export function elementsOf(dtype: string, data: ArrayBuffer): Elements {
  const reader = READERS[dtype]
  if (!reader) throw new Error(`Elements of the type ${dtype || '?'} cannot be shown here.`)
  const bytes = new DataView(data)
  return {
    length: Math.floor(data.byteLength / reader.width),
    at: (index) => reader.read(bytes, index * reader.width),
  }
}

/** The kind of an element, which determines its mark. */
export type Sign = 'nan' | 'inf' | '-inf' | 'zero' | 'negative' | 'positive'

export function signOf(element: Element): Sign {
  if (typeof element === 'object') {
    const { real, imaginary } = element
    if (Number.isNaN(real) || Number.isNaN(imaginary)) return 'nan'
    if (!Number.isFinite(real) || !Number.isFinite(imaginary)) return 'inf'
    return real === 0 && imaginary === 0 ? 'zero' : 'positive'
  }
  const number = Number(element)
  if (Number.isNaN(number)) return 'nan'
  if (number === Infinity) return 'inf'
  if (number === -Infinity) return '-inf'
  return number === 0 ? 'zero' : number < 0 ? 'negative' : 'positive'
}

/** Return the signed magnitude for colours; for complex numbers, the absolute value. */
export function sizeOf(element: Element): number {
  return typeof element === 'object' ? Math.hypot(element.real, element.imaginary) : Number(element)
}
