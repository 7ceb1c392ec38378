import { expect, test } from 'vitest'
import { nearestStep, newest, seriesOf, type Curve } from './series'

const curve = (of: Partial<Curve>) =>
  ({ name: 'loss', slot: 0, steps: [1, 5, 9], values: [3, 2, 1], marks: [0, 0, 0], ...of }) as Curve

test('curves of one kind share it, and are numbered if there are several', () => {
  const rates = [0, 1].map((slot) => curve({ name: 'learning_rate', slot }))
  const series = seriesOf([curve({}), ...rates], (kind, index) => `${kind} ${index ?? ''}`)
  expect(series.map(({ name, kind }) => [name, kind])).toEqual([
    ['loss ', 'loss'],
    ['learning_rate 1', 'learning_rate'],
    ['learning_rate 2', 'learning_rate'],
  ])
})

test('a step without a number is marked, and the newest value is the last finite one', () => {
  const [loss] = seriesOf([curve({ values: [3, 2, null], marks: [0, 0, 1] })], (kind) => kind)
  expect(loss?.sick).toEqual([{ step: 9, isNan: true }])
  expect(loss && newest(loss)).toBe(2)
})

test('a click goes to the nearest step that has a value', () => {
  const series = seriesOf([curve({}), curve({ name: 'gradient_norm', steps: [4] })], (kind) => kind)
  expect(nearestStep(series, 4.4)).toBe(4)
  expect(nearestStep(series, 100)).toBe(9)
  expect(nearestStep([], 1)).toBeNull()
})
