import { describe, expect, it } from 'vitest'
import { elementsOf, signOf } from './elements'
import { exactText, formatted } from './formats'

describe('a number', () => {
  it('is never shown as 0 if it is not 0', () => {
    expect(formatted(1e-9, { notation: 'decimal', digits: 4 })).toBe('≈0')
    expect(formatted(-1e-9, { notation: 'decimal', digits: 0 })).toBe('≈-0')
    expect(formatted(0, { notation: 'decimal', digits: 4 })).toBe('0')
    expect(formatted(-0, { notation: 'scientific', digits: 4 })).toBe('-0')
    expect(formatted(1e-9, { notation: 'auto', digits: 6 })).toBe('1e-9')
  })

  it('is written in the requested format', () => {
    expect(formatted(1234.5678, { notation: 'decimal', digits: 2 })).toBe('1234.57')
    expect(formatted(1234.5678, { notation: 'scientific', digits: 2 })).toBe('1.23e+3')
    expect(formatted(1234.5678, { notation: 'auto', digits: 6 })).toBe('1234.57')
    expect(formatted(12345678.9, { notation: 'auto', digits: 4 })).toBe('1.235e+7')
    expect(formatted(NaN, { notation: 'decimal', digits: 2 })).toBe('NaN')
    expect(formatted(-Infinity, { notation: 'scientific', digits: 2 })).toBe('-Inf')
    expect(formatted(true, { notation: 'decimal', digits: 2 })).toBe('True')
    expect(formatted({ real: 1, imaginary: -2 }, { notation: 'auto', digits: 3 })).toBe('1-2j')
  })

  it('is exact in full', () => {
    expect(exactText(Math.fround(0.1), 'float32')).toBe('0.1')
    expect(exactText(0.1, 'float64')).toBe('0.1')
    expect(exactText(Math.fround(1 / 3), 'float64')).toBe('0.3333333432674408')
    expect(exactText(0.0999755859375, 'float16')).toBe('0.1')
    expect(exactText(0.10009765625, 'bfloat16')).toBe('0.1')
    expect(exactText(0.1015625, 'float8_e4m3fn')).toBe('0.1')
    expect(exactText(0.09375, 'float8_e5m2')).toBe('0.09')
    expect(exactText(2n ** 63n - 1n, 'int64')).toBe('9223372036854775807')
  })
})

describe('raw elements', () => {
  const at = (dtype: string, bytes: number[]) => elementsOf(dtype, new Uint8Array(bytes).buffer).at(0)

  it('are read by their type', () => {
    expect(at('float16', [0x00, 0x3c])).toBe(1)
    expect(at('float16', [0x01, 0x80])).toBe(-(2 ** -24))
    expect(at('float16', [0x00, 0xfc])).toBe(-Infinity)
    expect(at('float16', [0x01, 0x7e])).toBeNaN()
    expect(at('bfloat16', [0x80, 0x3f])).toBe(1)
    expect(at('float8_e4m3fn', [0x38])).toBe(1)
    expect(at('float8_e4m3fn', [0x81])).toBe(-(2 ** -9))
    expect(at('float8_e4m3fn', [0x7e])).toBe(448)
    expect(at('float8_e4m3fn', [0xff])).toBeNaN()
    expect(at('float8_e5m2', [0x3c])).toBe(1)
    expect(at('float8_e5m2', [0x01])).toBe(2 ** -16)
    expect(at('float8_e5m2', [0xfc])).toBe(-Infinity)
    expect(at('float8_e5m2', [0x7d])).toBeNaN()
    expect(at('int64', [255, 255, 255, 255, 255, 255, 255, 127])).toBe(2n ** 63n - 1n)
    expect(at('bool', [2])).toBe(true)
    expect(() => at('object', [0])).toThrow('object')
  })

  it('have a sign, or none', () => {
    const signs = [NaN, Infinity, -Infinity, -0, -3n, true, { real: NaN, imaginary: 1 }].map(signOf)
    expect(signs).toEqual(['nan', 'inf', '-inf', 'zero', 'negative', 'positive', 'nan'])
  })
})
