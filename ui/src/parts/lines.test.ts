import { expect, test } from 'vitest'
import { codeOf, lastLine, linesOf } from './lines'

test('a line is named by its number', () => {
  const frame = { line: 19, end_line: null, code: '  loss.backward()' }
  expect([linesOf(frame), codeOf(frame), lastLine(frame)]).toEqual(['19', 'loss.backward()', 19])
})

test('of several lines the first and the last are named, and there is more code than is shown', () => {
  const frame = { line: 16, end_line: 18, code: 'x = x * self.gain' }
  expect([linesOf(frame), codeOf(frame), lastLine(frame)]).toEqual(['16–18', 'x = x * self.gain …', 18])
})

test('a frame without a line has none', () => {
  expect(linesOf({ line: null, end_line: null })).toBe('')
})
