import { describe, expect, it } from 'vitest'
import type { TreeEntry } from '~/api/types'
import { clustered, isCluster } from './groups'

const IN_ALL = { graph: 'g', graphs: [], apart: false }

function entry(label: string, kind: TreeEntry['kind'] = 'operator', type = ''): TreeEntry {
  return {
    path: label,
    label,
    kind,
    type,
    children: 0,
    nodes: 1,
    hits: 0,
    roles: [],
    dynamic_shape: false,
    ...IN_ALL,
  }
}

function drawn(entries: TreeEntry[]): string[] {
  return clustered(entries).map((item) => (isCluster(item) ? `${item.label} ${item.detail}` : item.label))
}

describe('the boxes for the entries of a scope', () => {
  it('are all entries if there are few', () => {
    const few = Array.from({ length: 30 }, (_, number) => entry(`ReLU-op${number}`, 'operator', 'ReLU'))
    expect(clustered(few)).toEqual(few)
  })

  it('sort scopes by their numbers', () => {
    expect(drawn([entry('10-Block', 'scope'), entry('9-Block', 'scope')])).toEqual(['9-Block', '10-Block'])
  })

  it('merge many operators of one type', () => {
    const many = Array.from({ length: 31 }, (_, number) =>
      entry(`op${number}`, 'operator', number < 28 ? 'Add' : 'Mul'),
    )
    expect(drawn(many)).toEqual(['Add ×28', 'op28', 'op29', 'op30'])
  })

  it('split very many similar scopes into readable runs', () => {
    const blocks = Array.from({ length: 120 }, (_, number) => entry(`${number}-Block`, 'scope'))
    expect(drawn(blocks)).toEqual([
      '0-Block … 49-Block ×50',
      '50-Block … 99-Block ×50',
      '100-Block … 119-Block ×20',
    ])
  })

  it('are never very many, even if nothing is similar', () => {
    const all = Array.from({ length: 500 }, (_, number) => entry(`op${number}`, 'operator', `Type${number}`))
    expect(clustered(all)).toHaveLength(10)
    expect(clustered(all).flatMap((item) => (isCluster(item) ? item.entries : [item]))).toEqual(all)
  })
})
