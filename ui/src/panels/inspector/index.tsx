import { Badge, Button, SegmentedControl, Skeleton, Tooltip } from '@mantine/core'
import { IconPointer } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { API } from '~/api/client'
import { useGraphs, useNode, useNodeTensors, useSession } from '~/api/queries'
import type { NodeRecord, TensorRecord } from '~/api/types'
import { Advice } from '~/parts/Advice'
import { CopyButton } from '~/parts/CopyButton'
import { Failure, Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useGraphName } from '~/parts/variants'
import { useView } from '~/state/store'
import { Follow } from './Follow'
import styles from './inspector.module.css'
import { dumpSnippet, serverSnippet } from './snippets'
import { Source } from './Source'
import { Tensors } from './Tensors'
import { inspectorTexts } from './texts'

/** Number of consumers listed at first. */
const FEW = 12

/** The details of the selected node: type, tensors, source code, and Python to access it. */
export function Inspector() {
  const { t } = useTranslation(inspectorTexts)
  const node = useView((view) => view.node)
  return (
    <div className="fill" data-testid="panel-inspector">
      {node === null ? (
        <Notice icon={<IconPointer size={28} aria-hidden />} title={t('nothing')}>
          {t('nothingText')}
        </Notice>
      ) : (
        <Inspected key={`${node.rank}/${node.name}`} name={node.name} />
      )}
    </div>
  )
}

function Inspected({ name }: { name: string }) {
  const { t } = useTranslation(inspectorTexts)
  const selected = useView((view) => view.node)
  const { data: node, error, refetch } = useNode()
  const { data: records, error: tensorsError, isPlaceholderData: isOfOtherStep } = useNodeTensors()
  const [slot, setSlot] = useState<string | null>(null)
  const chosen = chosenOf(records ?? [], slot)
  if (error && !node) return <Failure error={error} retry={() => void refetch()} />
  const hasHits = records?.some((record) => record.abbreviations.length > 0) === true
  return (
    <>
      <Head name={name} node={node} />
      <div className="scroll" aria-busy={isOfOtherStep}>
        {node?.value && (
          <section>
            <h3 className={styles.subtitle}>{t('value')}</h3>
            <code className={styles.code}>{node.value}</code>
          </section>
        )}
        <Tensors
          node={node}
          records={records ?? (tensorsError ? [] : undefined)}
          isRead={!isOfOtherStep && (records !== undefined || tensorsError !== null)}
          chosen={chosen}
          onChoose={(record) => setSlot(`${record.io}.${record.slot}`)}
        />
        {tensorsError && <p className={styles.note}>{tensorsError.message}</p>}
        {chosen && <Follow record={chosen} />}
        {node && <Source node={node} />}
        {hasHits && (
          <section>
            <h3 className={styles.subtitle}>{t('advice')}</h3>
            <div className={styles.advice}>
              <Advice node={selected} />
            </div>
          </section>
        )}
        {chosen && <Snippet record={chosen} />}
        {node && <More node={node} />}
      </div>
    </>
  )
}

/** Return the chosen tensor, else the first output with a hit, else the first output or input. */
function chosenOf(records: TensorRecord[], slot: string | null): TensorRecord | null {
  const outputs = records.filter((record) => record.io === 'output')
  return (
    records.find((record) => `${record.io}.${record.slot}` === slot) ??
    outputs.find((record) => record.abbreviations.length > 0) ??
    outputs[0] ??
    records[0] ??
    null
  )
}

function Head({ name, node }: { name: string; node: NodeRecord | undefined }) {
  const { t } = useTranslation(inspectorTexts)
  const cut = name.lastIndexOf('/') + 1
  return (
    <header className={styles.head}>
      <div className={styles.line}>
        <h2 className={styles.name} title={name}>
          {name.slice(cut)}
        </h2>
        <CopyButton text={name} label={t('copyName')} />
      </div>
      <div className={styles.scope} title={name}>
        {cut > 0 ? name.slice(0, cut - 1) : ' '}
      </div>
      {node ? (
        <div className={styles.badges}>
          <Badge size="sm" radius="sm" variant="light" tt="none">
            {node.type}
          </Badge>
          <span>{t(`kind.${node.kind}`)}</span>
          {node.roles.map((role) => (
            <span key={role}>· {t(`roles.${role}`, { defaultValue: role })}</span>
          ))}
          {node.kind === 'operator' && typeof node.position === 'number' && (
            <Tooltip label={t('positionLong')}>
              <span>· {t('position', { position: count(node.position) })}</span>
            </Tooltip>
          )}
          <span className={styles.quiet}>
            {t('rank', { rank: node.rank })} · <Variant node={node} />
          </span>
        </div>
      ) : (
        <Skeleton h={18} />
      )}
    </header>
  )
}

/** The graph of the node with the steps in which it ran; a tooltip lists all graphs that have the node. */
function Variant({ node }: { node: NodeRecord }) {
  const { t } = useTranslation(inspectorTexts)
  const { data: graphs = [] } = useGraphs()
  const graphName = useGraphName()
  const shown = graphs.find((graph) => graph.name === node.graph)
  const variants = graphs.filter((graph) => node.graphs.includes(graph.name))
  if (graphs.length < 2 || shown === undefined || shown.rank !== node.rank) return node.graph
  const total = { count: graphs.length, variants: variants.length }
  return (
    <Tooltip label={t('inGraphs', { graphs: variants.map(graphName).join(', ') })} multiline maw={420}>
      <span tabIndex={0} data-testid="node-variant" data-absent={!shown.ran || undefined}>
        {graphName(shown)}
        {' · '}
        {t(!shown.ran ? 'notInStep' : variants.length === graphs.length ? 'inAll' : 'inSome', total)}
      </span>
    </Tooltip>
  )
}

/** A Python snippet for the chosen tensor. */
function Snippet({ record }: { record: TensorRecord }) {
  const { t } = useTranslation(inspectorTexts)
  const run = useView((view) => view.run)
  const { data: session } = useSession()
  const [from, setFrom] = useState<'live' | 'dump'>('live')
  const server = API.replace(/\/api\/v1\/$/, '')
  const isOnDisk = session?.dump && record.status === 'available'
  const text =
    from === 'dump' && isOnDisk ? dumpSnippet(record, session.dump) : serverSnippet(record, run, server)
  return (
    <section data-testid="snippet">
      <div className={styles.sectionHead}>
        <h3>{t('snippet')}</h3>
        {isOnDisk && (
          <SegmentedControl
            className={styles.segments ?? ''}
            ml="auto"
            aria-label={t('snippet')}
            value={from}
            onChange={(value) => setFrom(value === 'dump' ? 'dump' : 'live')}
            data={[
              { value: 'live', label: t('live') },
              { value: 'dump', label: t('dump') },
            ]}
          />
        )}
        <CopyButton text={text} label={t('copySnippet')} />
      </div>
      <div className={styles.line}>
        <span className={styles.address} title={record.address}>
          {record.address}
        </span>
        <CopyButton text={record.address} label={t('copyAddress')} />
      </div>
      <pre className={styles.snippet} tabIndex={0}>
        {text}
      </pre>
    </section>
  )
}

function More({ node }: { node: NodeRecord }) {
  const { t } = useTranslation(inspectorTexts)
  const selectNode = useView((view) => view.selectNode)
  const [isAll, setAll] = useState(false)
  const shown = isAll ? node.consumers : node.consumers.slice(0, FEW)
  const attributes = Object.entries(node.attributes ?? {})
  return (
    <>
      {node.consumers.length > 0 && (
        <section>
          <h3 className={styles.subtitle}>
            {t('consumers')} <span className={styles.quiet}>{count(node.consumer_count)}</span>
          </h3>
          <ul className={styles.consumers}>
            {shown.map((name) => (
              <li key={name}>
                <button
                  type="button"
                  className={styles.peer}
                  title={name}
                  onClick={() => selectNode({ rank: node.rank, graph: node.graph, name })}
                >
                  {name}
                </button>
              </li>
            ))}
          </ul>
          {shown.length < node.consumers.length && (
            <Button size="compact-xs" variant="subtle" onClick={() => setAll(true)}>
              {t('more', { count: node.consumers.length })}
            </Button>
          )}
        </section>
      )}
      {attributes.length > 0 && (
        <section>
          <h3 className={styles.subtitle}>
            {t('attributes')} <span className={styles.quiet}>{count(attributes.length)}</span>
          </h3>
          <dl className={styles.attributes}>
            {attributes.map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </section>
      )}
    </>
  )
}
