import { describe, expect, it } from 'vitest'
import { defaultEntries, parseEntries, parseEntry, rangeLength, rangePart, sliceText } from './slices'

describe('a slice', () => {
  it('initially shows the last two dimensions', () => {
    expect(sliceText(defaultEntries([4, 3, 28, 28]))).toBe('[0, 0, :, :]')
    expect(sliceText(defaultEntries([7]))).toBe('[:]')
    expect(sliceText(defaultEntries([]))).toBe('[]')
    expect(defaultEntries([0, 3, 4])).toEqual([':', ':', ':'])
  })

  it('counts negative numbers from the end', () => {
    expect(parseEntry('-1', 0, 10)).toEqual({ kind: 'index', index: 9 })
    expect(parseEntry(' -4 : ', 0, 10)).toEqual({ kind: 'range', start: 6, end: 10, step: 1 })
    expect(parseEntry('::-1', 0, 10)).toEqual({ kind: 'range', start: 9, end: -1, step: -1 })
  })

  it('says which dimension is wrong, and its bounds', () => {
    expect(parseEntry('10', 1, 10)).toEqual({
      dimension: 1,
      key: 'index',
      values: { text: 10, least: -10, most: 9 },
    })
    expect(parseEntry('0:11', 2, 10)).toMatchObject({ dimension: 2, key: 'bound' })
    expect(parseEntry('0:5:0', 0, 10)).toMatchObject({ key: 'step' })
    expect(parseEntry('1e3', 0, 10)).toMatchObject({ key: 'form' })
    expect(parseEntry('', 0, 10)).toMatchObject({ key: 'empty' })
    expect(parseEntries([':', ':', ':'], [2, 2, 2])).toMatchObject({ dimension: 2, key: 'ranges' })
  })

  it('has as many elements as in Python', () => {
    const length = (text: string) => {
      const entry = parseEntry(text, 0, 10)
      return 'kind' in entry && entry.kind === 'range' ? rangeLength(entry) : -1
    }
    expect([':', '2:5', '::3', '5:2', '::-1', '8:2:-2', '3:3'].map(length)).toEqual([10, 3, 4, 0, 10, 3, 0])
  })

  it('is requested in parts', () => {
    const range = (text: string) => {
      const entry = parseEntry(text, 0, 10)
      if (!('kind' in entry) || entry.kind !== 'range') throw new Error(text)
      return entry
    }
    expect(rangePart(range('2:'), 3, 2)).toBe('5:7')
    expect(rangePart(range('::3'), 1, 2)).toBe('3:9:3')
    expect(rangePart(range('::3'), 2, 2)).toBe('6:10:3')
    expect(rangePart(range('::-1'), 8, 2)).toBe('1::-1')
  })
})
