import type { ErrorDetail } from './types'

/** URL of the API: next to the page, under any URL prefix of the server. */
export const API = new URL('api/v1/', document.baseURI.replace(/[?#].*$/, '')).href

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>

/** An error response of the server; `message` is meant for users. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: ErrorDetail['code'] | 'unreachable',
    message: string,
    readonly where = '',
  ) {
    super(message)
  }
}

/** Return the URL of an API path; undefined and null values are left out of the query. */
export function apiUrl(path: string, query: Query = {}): string {
  const url = new URL(path.replace(/^\//, ''), API)
  for (const [name, value] of Object.entries(query)) {
    if (Array.isArray(value)) value.forEach((entry: string) => url.searchParams.append(name, entry))
    else if (value !== undefined && value !== null) url.searchParams.set(name, String(value))
  }
  return url.href
}

async function send(
  method: string,
  path: string,
  options: { query?: Query; body?: unknown; signal?: AbortSignal },
) {
  const request: RequestInit = { method, credentials: 'same-origin' }
  if (options.signal) request.signal = options.signal
  if (options.body !== undefined) {
    request.body = JSON.stringify(options.body)
    request.headers = { 'Content-Type': 'application/json' }
  }
  let response: Response
  try {
    response = await fetch(apiUrl(path, options.query), request)
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error
    throw new ApiError(0, 'unreachable', 'The debug server does not answer.')
  }
  if (!response.ok) throw await refusal(response)
  return response
}

async function refusal(response: Response): Promise<ApiError> {
  try {
    const { error } = (await response.json()) as { error: ErrorDetail }
    return new ApiError(response.status, error.code, error.message, error.where)
  } catch {
    return new ApiError(response.status, 'server-failed', `${response.status} ${response.statusText}`)
  }
}

export async function get<T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> {
  const response = await send('GET', path, { ...(query && { query }), ...(signal && { signal }) })
  return (await response.json()) as T
}

export async function getText(path: string, query?: Query, signal?: AbortSignal): Promise<string> {
  return await (await send('GET', path, { ...(query && { query }), ...(signal && { signal }) })).text()
}

/** Send a request that changes something; return the body of the response, undefined if it is empty. */
export async function change<T = undefined>(
  method: 'POST' | 'PATCH' | 'DELETE',
  path: string,
  body?: unknown,
): Promise<T> {
  const text = await (await send(method, path, { body })).text()
  return (text ? JSON.parse(text) : undefined) as T
}

/** A response in the `raw` format: elements in C order. */
export interface RawArray {
  dtype: string
  shape: number[]
  tensorDtype: string
  tensorShape: number[]
  slice: string
  data: ArrayBuffer
}

export async function getRaw(path: string, query: Query, signal?: AbortSignal): Promise<RawArray> {
  const response = await send('GET', path, { query: { ...query, format: 'raw' }, ...(signal && { signal }) })
  const header = (name: string) => response.headers.get(`X-Tensight-${name}`) ?? ''
  return {
    dtype: header('Dtype'),
    shape: numbers(header('Shape')),
    tensorDtype: header('Tensor-Dtype'),
    tensorShape: numbers(header('Tensor-Shape')),
    slice: header('Slice'),
    data: await response.arrayBuffer(),
  }
}

function numbers(text: string): number[] {
  return text
    .replace(/[[\]()\s]/g, '')
    .split(',')
    .filter(Boolean)
    .map(Number)
}
