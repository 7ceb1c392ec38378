import { Table } from '@mantine/core'
import { useTranslation } from 'react-i18next'
import type { Frame, Origin, TensorRecord } from '~/api/types'
import { conditionTexts } from '~/parts/conditionTexts'
import { codeOf, lastLine } from '~/parts/lines'
import { count, shapeText, short } from '~/parts/numbers'
import { nodeOf, stepOf, type Finding } from './findings'
import { NodeLink } from './NodeLink'
import classes from './origin.module.css'
import { useSourceText } from '~/panels/sources/queries'
import { excerptOf } from './excerpt'
import { lineOf, positionOf } from './SourceLine'
import { originTexts } from './texts'
import { useValues } from './values'

const MOST_FRAMES = 6
const MOST_NODES = 8

/** The code around the line, its callers, inputs and outputs, and other possible origins. */
export function Details({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const origin = finding.kind === 'origin' ? finding.origin : null
  return (
    <div className={classes['details']} data-testid="origin-details">
      <div>
        <Code finding={finding} />
        {origin && <Callers stack={origin.stack} />}
      </div>
      <div>
        <Values finding={finding} />
        {origin && <Nodes title={t('candidates')} origin={origin} names={origin.candidates} />}
        {origin && <Nodes title={t('also')} origin={origin} names={origin.also} />}
      </div>
    </div>
  )
}

function Code({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const line = lineOf(finding)
  // For an origin, the server sends the surrounding lines; for a hit, they are read from the text of its file.
  const reported = finding.kind === 'origin' ? finding.origin.excerpt : []
  const { data: text = '', isLoading } = useSourceText(reported.length === 0 && line ? line.file : '')
  if (!line) return null
  const excerpt = reported.length > 0 ? reported : excerptOf(text, line)
  const lines = excerpt.length > 0 ? excerpt : [{ line: line.line ?? 0, code: line.code }]
  return (
    <figure className={classes['code']}>
      <figcaption title={line.file}>{positionOf(line)}</figcaption>
      <pre tabIndex={0} aria-label={t('code')}>
        {lines.map((row) => (
          <div key={row.line} data-here={row.line >= (line.line ?? 0) && row.line <= lastLine(line)}>
            <span>{row.line || ''}</span>
            <code>{row.code || ' '}</code>
          </div>
        ))}
      </pre>
      {excerpt.length === 0 && !isLoading && (
        <p className={classes['quiet']}>{t('noExcerpt', { file: line.file })}</p>
      )}
    </figure>
  )
}

function Callers({ stack }: { stack: Frame[] }) {
  const { t } = useTranslation(originTexts)
  const at = stack.findIndex((frame) => frame.is_user_code)
  const callers = stack.slice(at + 1, at + 1 + MOST_FRAMES)
  if (callers.length === 0) return null
  return (
    <>
      <h3>{t('stack')}</h3>
      <ol className={classes['stack']}>
        {callers.map((frame, position) => (
          <li key={position} title={`${frame.file}:${frame.line ?? ''}`}>
            <span className={classes['place']}>{positionOf(frame)}</span> <code>{codeOf(frame)}</code>
          </li>
        ))}
      </ol>
    </>
  )
}

function Values({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const { data, isLoading } = useValues(finding)
  const step = stepOf(finding)
  if (isLoading) return null
  const tensors = (data ?? []).filter((tensor) => tensor.statistics)
  return (
    <>
      <h3>{t('values', { step })}</h3>
      {tensors.length === 0 ? (
        <p className={classes['quiet']}>{t('noValues', { step })}</p>
      ) : (
        <div className={classes['scroll']} tabIndex={0} role="group" aria-label={t('values', { step })}>
          <Table className={classes['table'] ?? ''} withRowBorders={false} verticalSpacing={1}>
            <Table.Thead>
              <Table.Tr>
                {(['which', 'shape', 'min', 'max', 'nan', 'inf'] as const).map((column) => (
                  <Table.Th key={column}>{t(`columns.${column}`)}</Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {tensors.map((tensor) => (
                <ValueRow key={`${tensor.io}${tensor.slot}${tensor.address}`} tensor={tensor} />
              ))}
            </Table.Tbody>
          </Table>
        </div>
      )}
    </>
  )
}

function ValueRow({ tensor }: { tensor: TensorRecord }) {
  const { t } = useTranslation(conditionTexts)
  const { statistics } = tensor
  if (!statistics) return null
  const infinite = statistics.neg_inf_count + statistics.pos_inf_count
  const bad = (amount: number) => (amount > 0 ? { className: classes['bad'] ?? '' } : {})
  return (
    <Table.Tr>
      <Table.Td title={tensor.address}>{t(tensor.io, { slot: tensor.slot })}</Table.Td>
      <Table.Td>
        {tensor.dtype}
        {shapeText(tensor.shape)}
      </Table.Td>
      <Table.Td>{short(statistics.min)}</Table.Td>
      <Table.Td>{short(statistics.max)}</Table.Td>
      <Table.Td {...bad(statistics.nan_count)}>{count(statistics.nan_count)}</Table.Td>
      <Table.Td {...bad(infinite)}>{count(infinite)}</Table.Td>
    </Table.Tr>
  )
}

function Nodes({ title, origin, names }: { title: string; origin: Origin; names: readonly string[] }) {
  const { t } = useTranslation(originTexts)
  if (names.length === 0) return null
  const node = nodeOf({ kind: 'origin', key: '', origin })
  return (
    <>
      <h3>{title}</h3>
      <ul className={classes['nodes']}>
        {names.slice(0, MOST_NODES).map((name) => (
          <li key={name}>
            <NodeLink node={{ ...node, name }} />
          </li>
        ))}
        {names.length > MOST_NODES && (
          <li className={classes['quiet']}>{t('more', { count: names.length - MOST_NODES })}</li>
        )}
      </ul>
    </>
  )
}
