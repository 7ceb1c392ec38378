import { keepPreviousData, queryOptions, useQuery, type UseQueryOptions } from '@tanstack/react-query'
import { get, getRaw, type Query, type RawArray } from '~/api/client'
import { keys, nodeTensors, path } from '~/api/queries'
import type { ElementRecord, Histogram, NodeRecord, TensorRecord, TensorStatistics, Which } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import { useView } from '~/state/store'

/** A request for a value: a tensor at its step, or the difference to the step before. */
export interface ValueRequest {
  /** With its step, so that an answer can never be of another step than the one it is shown for. */
  address: string
  which: Which
  tolerance: number
  /** Another path of the API that answers the same requests, as a comparison does for each of its sides. */
  from?: { path: string; query: Query }
}

/** Where a part of a value is in the API. */
function partPath(run: string, request: ValueRequest, part: string): string {
  return request.from ? `${request.from.path}/${part}` : path(run, `/tensor/${part}`)
}

/** What two runs have is the same at whatever step one of them is looked at. */
function valueKey(run: string, request: ValueRequest, ...more: unknown[]) {
  return request.from
    ? (['value', request.from.path, request.from.query, ...more] as const)
    : keys.step(run, 'value', query(request), ...more)
}

/** The tensor of an address at the step that is shown; null if its node has no such input or output. */
export function useTensor(address: string) {
  const run = useView((view) => view.run)
  const parts = parseAddress(address)
  const node = parts && { rank: parts.rank, graph: parts.graph, name: parts.node }
  return useQuery({
    ...nodeTensors(run, node),
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

/** The picture of a slice in at most so many cells; while another size is read, the one before stands. */
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

/** Where an element is; to be given to `useQuery` or `fetchQuery`. */
export function elementQuery(run: string, request: ValueRequest, find: Find, slice = '') {
  return queryOptions({
    queryKey: valueKey(run, request, 'element', find, slice),
    queryFn: ({ signal }) =>
      get<ElementRecord>(partPath(run, request, 'element'), { ...query(request), find, slice }, signal),
  })
}

/** The map of all slices that differ where a slice has an index: three planes of at most so many cells. */
export function useSliceMap(request: ValueRequest, slice: string, rows: number, columns: number) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: valueKey(run, request, 'slices', slice, rows, columns),
    queryFn: ({ signal }) =>
      getRaw(partPath(run, request, 'slices'), { ...query(request), slice, rows, columns }, signal),
  })
}

/** A piece of a slice, for the table; to be given to `useQueries`. */
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

/** The output that an input of an operator is made from; null for outputs, and while it is not known. */
export function useProducer(record: TensorRecord | undefined): string | null {
  const run = useView((view) => view.run)
  const node = record && { rank: record.rank, graph: record.graph, name: record.node }
  const { data } = useQuery({
    queryKey: keys.graphs(run, 'node', node),
    queryFn: ({ signal }) => get<NodeRecord>(path(run, '/node'), { ...node }, signal),
    enabled: record?.io === 'input',
  })
  const slot = record?.io === 'input' ? data?.inputs.find((one) => one.slot === record.slot) : undefined
  return record && slot?.peer ? `${record.rank}/${record.graph}/${slot.peer}:${slot.peer_slot}` : null
}
