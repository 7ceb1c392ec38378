import { expect, test } from 'vitest'
import { attachment, startCommands } from './commands'

test.each([
  ['127.0.0.1:50051', null, 'localhost', { host: 'localhost', port: '50051' }],
  ['127.0.0.1:50051', null, 'tunnel.example', { host: 'localhost', port: '50051' }],
  ['127.0.0.1:50051', 'gpu-7:50051', '10.0.0.7', { host: '10.0.0.7', port: '50051' }],
  ['[::1]:6000', 'gpu-7:6000', '127.0.0.1', { host: 'gpu-7', port: '6000' }],
  ['10.0.0.7:50051', '10.0.0.7:50051', 'gpu-7', { host: '10.0.0.7', port: '50051' }],
])(
  'a training attaches to %s, elsewhere to %s, seen from a page of %s',
  (here, elsewhere, page, expected) => {
    expect(attachment(here, elsewhere, page)).toEqual(expected)
  },
)

test('the commands always name the port, and the host if it is another machine', () => {
  expect(startCommands({ host: 'localhost', port: '50051' }, false).atStart).toBe(
    'tensight run --port 50051 --break-at-start train.py',
  )
  expect(startCommands({ host: 'gpu-7', port: '6000' }, false).original).toBe(
    'ENABLE_MS_DEBUGGER=1 MS_DEBUGGER_HOST=gpu-7 MS_DEBUGGER_PORT=6000 python train.py',
  )
  expect(startCommands({ host: 'gpu-7', port: '6000' }, false).environment).toBe(
    'TENSIGHT_DEBUG=1 TENSIGHT_DEBUGGER_HOST=gpu-7 TENSIGHT_DEBUGGER_PORT=6000 TENSIGHT_BREAK_AT_START=1 python train.py',
  )
})

test('if the server has a token, the commands contain it; a client without tokens has no command', () => {
  const commands = startCommands({ host: 'gpu-7', port: '6000' }, true)
  expect(commands.recommended).toBe(
    'TENSIGHT_TOKEN=TOKEN tensight run --host gpu-7 --port 6000 --recommended train.py',
  )
  expect(commands.environment).toMatch(/^TENSIGHT_TOKEN=TOKEN TENSIGHT_DEBUG=1 /)
  expect(commands.original).toBeNull()
})
