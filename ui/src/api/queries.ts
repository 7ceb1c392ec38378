import {
  keepPreviousData,
  skipToken,
  useMutation,
  useQuery,
  queryOptions,
  useQueryClient,
} from '@tanstack/react-query'
import { useCallback } from 'react'
import { showRefusal } from '~/parts/refusal'
import { useView, type NodeChoice } from '~/state/store'
import { newer, read } from './changes'
import { change, get } from './client'
import { keys, path } from './keys'
import type {
  Command,
  GraphRecord,
  Progress,
  ServerRecord,
  Session,
  TreePage,
  TensorRecord,
  HitPage,
  Watchpoint,
  NodeRecord,
  Origin,
} from './types'

export { keys, path }

/** The open session; undefined while it loads, or if none is open. */
export function useSession() {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.record(run),
    queryFn: ({ client, signal }) =>
      read(() => client.getQueryData(keys.record(run)), get<Session>(path(run), {}, signal)),
    enabled: run !== '',
  })
}

/** All sessions of the server, oldest first. */
export function useSessions() {
  return useQuery({
    queryKey: keys.sessions,
    queryFn: async ({ client, signal }) => {
      const received = await get<Session[]>('sessions', {}, signal)
      const cached = client.getQueryData<Session[]>(keys.sessions)
      return received.map((session) =>
        newer(
          cached?.find(({ id }) => id === session.id),
          session,
        ),
      )
    },
  })
}

export function useServer() {
  return useQuery({ queryKey: keys.server, queryFn: ({ signal }) => get<ServerRecord>('server', {}, signal) })
}

/** Progress of the session's current work; null or undefined if it reports none. */
export function useProgress() {
  const run = useView((view) => view.run)
  return useQuery<Progress | null>({ queryKey: keys.progress(run), queryFn: skipToken }).data
}

export function useHits(
  query: {
    rank?: number
    graph?: string
    watchpoint?: number
    focus?: string
    offset?: number
    limit?: number
  } = {},
) {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.hits(run, 'list', query),
    queryFn: ({ signal }) => get<HitPage>(path(run, '/hits'), query, signal),
    enabled: run !== '',
    placeholderData: keepPreviousData,
  })
}

/**
 * Origins of anomalies: of a training up to the step shown; of a dump in all steps, cached while the user goes from
 * step to step. Requested if there are hits, or if an earlier step of a training is shown.
 */
export function useOrigins() {
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  const isWanted = (session?.hits ?? 0) > 0 || session?.present_step != null
  return useQuery({
    queryKey: keys.hits(run, 'origins', session?.capabilities.live === true ? session.step : 'all'),
    queryFn: ({ signal }) => get<Origin[]>(path(run, '/origins'), {}, signal),
    enabled: session?.capabilities.has_origin === true && isWanted,
  })
}

export function useWatchpoints() {
  const run = useView((view) => view.run)
  return useQuery({
    queryKey: keys.watchpoints(run, 'list'),
    queryFn: ({ signal }) => get<Watchpoint[]>(path(run, '/watchpoints'), {}, signal),
    enabled: run !== '',
  })
}

/** The graphs of the selected rank: the variants of its program. Which of them ran depends on the step. */
export function useGraphs() {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  return useQuery({
    queryKey: keys.step(run, 'graphs', rank),
    queryFn: ({ signal }) => get<GraphRecord[]>(path(run, '/graphs'), { rank }, signal),
    enabled: run !== '',
  })
}

/**
 * Return the query for a node: of the variants that have it, the server uses the one that ran in the step shown, unless
 * the user has chosen a graph.
 */
function nodeQuery(node: NodeChoice | null, chosen: string) {
  return { name: node?.name, rank: node?.rank, graph: node?.graph || chosen, follow: chosen === '' }
}

/** The selected node with its details. */
export function useNode() {
  const run = useView((view) => view.run)
  const node = useView((view) => view.node)
  const chosen = useView((view) => view.graph)
  return useQuery({
    queryKey: keys.step(run, 'node', node, chosen),
    queryFn: ({ signal }) => get<NodeRecord>(path(run, '/node'), nodeQuery(node, chosen), signal),
    enabled: run !== '' && node !== null,
  })
}

/** Return a test whether a row of a list is the selected node, in any graph that has the node. */
export function useIsSelected(): (row: { rank: number; graph: string; node: string }) => boolean {
  const node = useView((view) => view.node)
  const { data: record } = useNode()
  return useCallback(
    (row) => {
      if (node?.name !== row.node || node.rank !== row.rank) return false
      if (record?.name === node.name && record.rank === node.rank) return record.graphs.includes(row.graph)
      return node.graph === '' || node.graph === row.graph
    },
    [node, record],
  )
}

/**
 * What of a run is shown: its step and, within a step, the operator at which it is stopped. Numbers have it in their key,
 * so that none is shown for another step. A running training has no such step; it is read now and then.
 */
export function useShown(): string {
  const { data: session } = useSession()
  if (session === undefined) return ''
  return session.state === 'running' ? 'running' : `${session.step} ${session.node}`
}

/**
 * Return the query for the inputs and outputs of a node at the step shown; disabled if the node is null. While another
 * step loads, the tensors of the one before stay as a placeholder.
 */
export function nodeTensors(run: string, shown: string, node: NodeChoice | null, chosen = '') {
  const key = keys.step(run, 'tensors', node, chosen, shown)
  return queryOptions({
    queryKey: key,
    queryFn: ({ signal }) => {
      const { name, ...where } = nodeQuery(node, chosen)
      return get<TensorRecord[]>(path(run, '/tensors'), { node: name, ...where }, signal)
    },
    enabled: run !== '' && node !== null,
    placeholderData: (tensors: TensorRecord[] | undefined, last) =>
      sameBut(1, last?.queryKey, key) ? tensors : undefined,
  })
}

/** The inputs and outputs of the selected node at the step shown. */
export function useNodeTensors() {
  const run = useView((view) => view.run)
  const node = useView((view) => view.node)
  const chosen = useView((view) => view.graph)
  return useQuery(nodeTensors(run, useShown(), node, chosen))
}

export function useTree(scope: string, options: { offset?: number; limit?: number; enabled?: boolean } = {}) {
  const run = useView((view) => view.run)
  const rank = useView((view) => view.rank)
  const graph = useView((view) => view.graph)
  const watchpoint = useView((view) => view.watchpoint)
  const { enabled = true, offset = 0, limit = 500 } = options
  const key = keys.watchpoints(run, 'tree', rank, graph, scope, offset, limit, watchpoint)
  return useQuery({
    queryKey: key,
    queryFn: ({ signal }) =>
      get<TreePage>(path(run, '/tree'), { rank, graph, scope, watchpoint, offset, limit }, signal),
    enabled: enabled && run !== '',
    // The same rows, with the ticks of another watchpoint.
    placeholderData: (rows, query) => (sameBut(1, query?.queryKey, key) ? rows : undefined),
  })
}

/** Send a command; an error of the server is shown as a message. */
export function useCommand() {
  const run = useView((view) => view.run)
  const client = useQueryClient()
  return useMutation({
    mutationFn: (command: Partial<Command> & Pick<Command, 'action'>) =>
      change<Session>('POST', path(run, '/command'), command),
    onSuccess: (session) =>
      client.setQueryData<Session>(keys.record(run), (cached) => newer(cached, session)),
    onError: showRefusal,
  })
}

/** Whether two keys differ at most in their last parts. */
function sameBut(last: number, a: readonly unknown[] | undefined, b: readonly unknown[]): boolean {
  return JSON.stringify(a?.slice(0, -last)) === JSON.stringify(b.slice(0, -last))
}
