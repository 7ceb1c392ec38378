import { keepPreviousData, queryOptions, useQuery, type UseQueryOptions } from '@tanstack/react-query'
import { get, getRaw, type Query, type RawArray } from '~/api/client'
import { keys, nodeTensors, path, useShown } from '~/api/queries'
import type { ElementRecord, Histogram, NodeRecord, TensorRecord, TensorStatistics, Which } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'

/** A request for a value: a tensor at its step, or the difference to the step before. */
export interface ValueRequest {
  /** With its step, so that a response is never shown for another step. */
  address: string
  which: Which
  tolerance: number
  /** Another path of the API for the same requests, as used by comparisons for each side. */
  from?: { path: string; query: Query }
}

/** Return the API path of a part of a value. */
function partPath(run: string, request: ValueRequest, part: string): string {
  return request.from ? `${request.from.path}/${part}` : path(run, `/tensor/${part}`)
}

/** Return a query key; values of comparisons do not depend on the step shown. */
function valueKey(run: string, request: ValueRequest, ...more: unknown[]) {
  return request.from
    ? (['value', request.from.path, request.from.query, ...more] as const)
    : keys.step(run, 'value', query(request), ...more)
}

/** The tensor of an address at the step shown; null if its node has no such input or output. */
export function useTensor(address: string) {
  const run = useView((view) => view.run)
  const parts = parseAddress(address)
  const node = parts && { rank: parts.rank, graph: parts.graph, name: parts.node }
  return useQuery({
    ...nodeTensors(run, useShown(), node),
    select: (records) =>
      records.find((record) => record.io === parts?.io && record.slot === parts.slot) ?? null,
  })
}

function query(request: ValueRequest): Query {
  const { address, which, tolerance, from } = request
  if (from) return from.query
  return { address, which, ...(which === 'difference' && tolerance > 0 ? { tolerance } : {}) }
}

export function useTensorStatistics(request: ValueRequest, slice: string, enabled: boolean) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: valueKey(run, request, 'statistics', slice),
    queryFn: ({ signal }) =>
      get<TensorStatistics>(partPath(run, request, 'statistics'), { ...query(request), slice }, signal),
    enabled,
  })
}

export function useHistogram(request: ValueRequest, slice: string, bins: number) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: valueKey(run, request, 'histogram', slice, bins),
    queryFn: ({ signal }) =>
      get<Histogram>(partPath(run, request, 'histogram'), { ...query(request), slice, bins }, signal),
  })
}

/** The heat map of a slice with at most `rows` × `columns` cells; the previous one stays while another size loads. */
export function useHeatMap(request: ValueRequest, slice: string, rows: number, columns: number) {
  const run = useView((view) => view.run)
  const key = valueKey(run, request, 'heat-map', slice)
  return useQuery({
    queryKey: [...key, rows, columns],
    queryFn: ({ signal }) =>
      getRaw(partPath(run, request, 'heat-map'), { ...query(request), slice, rows, columns }, signal),
    enabled: rows > 0 && columns > 0,
    placeholderData: (before, last) =>
      last && JSON.stringify(last.queryKey.slice(0, -2)) === JSON.stringify(key)
        ? keepPreviousData(before)
        : undefined,
  })
}

export type Find = 'first' | 'largest' | 'next' | 'previous'

/** Return the query for the index of an element, for `useQuery` or `fetchQuery`. */
export function elementQuery(run: string, request: ValueRequest, find: Find, slice = '') {
  return queryOptions({
    queryKey: valueKey(run, request, 'element', find, slice),
    queryFn: ({ signal }) =>
      get<ElementRecord>(partPath(run, request, 'element'), { ...query(request), find, slice }, signal),
  })
}

/** The map of all slices along the indexed dimensions: three planes of at most `rows` × `columns` cells. */
export function useSliceMap(request: ValueRequest, slice: string, rows: number, columns: number) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: valueKey(run, request, 'slices', slice, rows, columns),
    queryFn: ({ signal }) =>
      getRaw(partPath(run, request, 'slices'), { ...query(request), slice, rows, columns }, signal),
  })
}

/** Return the query for a part of a slice, for `useQueries`. */
export function valuesQuery(
  run: string,
  request: ValueRequest,
  slice: string,
  enabled: boolean,
): UseQueryOptions<RawArray> {
  return {
    queryKey: valueKey(run, request, 'values', slice),
    queryFn: ({ signal }) => getRaw(partPath(run, request, 'values'), { ...query(request), slice }, signal),
    enabled,
    gcTime: 30_000,
  }
}

/** The address of the output that feeds an input of an operator; null for outputs, and while it loads. */
export function useProducer(record: TensorRecord | undefined): string | null {
  const run = useView((view) => view.run)
  const node = record && { rank: record.rank, graph: record.graph, name: record.node }
  const { data } = useQuery({
    queryKey: keys.graphs(run, 'node', node),
    queryFn: ({ signal }) => get<NodeRecord>(path(run, '/node'), { ...node }, signal),
    enabled: record?.io === 'input',
  })
  const slot = record?.io === 'input' ? data?.inputs.find((input) => input.slot === record.slot) : undefined
  return record && slot?.peer ? `${record.rank}/${record.graph}/${slot.peer}:${slot.peer_slot}` : null
}
