import { expect, test } from 'vitest'
import type { TensorRecord } from '~/api/types'
import { dumpSnippet, serverSnippet } from './snippets'

const record = (status: TensorRecord['status']) => ({ address: '0/g/a:0@3', status }) as TensorRecord

test.each<[TensorRecord['status'], boolean]>([
  ['available', true],
  ['at_source', true],
  ['statistics_only', false],
  ['not_kept', false],
])('code for a tensor that is %s reads only what there is', (status, hasValues) => {
  const code = serverSnippet(record(status), '1', 'http://127.0.0.1:8080')
  expect(code).toContain('session.tensor("0/g/a:0@3")')
  expect(code.includes('numpy()')).toBe(hasValues)
  expect(code.includes('history()')).toBe(!hasValues)
})

test('code for a dump says where its folder is', () => {
  expect(dumpSnippet(record('available'), 'runs/4')).toContain('--workspace')
  expect(dumpSnippet(record('available'), 'sick')).toContain('--summary-base-dir')
})
