import { Skeleton } from '@mantine/core'
import {
  IconAlertOctagon,
  IconAlertTriangle,
  IconBinaryTree2,
  IconBulb,
  IconChevronDown,
  IconChevronUp,
  IconClockHour4,
  IconCode,
  IconListDetails,
  IconTable,
  IconZoomIn,
} from '@tabler/icons-react'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { ActionButton } from '~/parts/ActionButton'
import { conditionTexts } from '~/parts/conditionTexts'
import { useConditionWords } from '~/parts/conditionWords'
import { HitMeasures } from '~/parts/HitMeasures'
import { useView } from '~/state/store'
import { isVague, nodeOf, stepOf, type Finding } from './findings'
import { Details } from './Details'
import { useFolded } from './folding'
import { NodeLink } from './NodeLink'
import { useNextStep } from './nextStep'
import classes from './origin.module.css'
import { SourceLine } from './SourceLine'
import { originTexts } from './texts'
import { useFindings, type Findings } from './useFindings'
import { useFinding } from './useFinding'
import { useOriginActions } from './useOriginActions'
import { ValuesLine } from './ValuesLine'

/** Names what happened, where, in which line, and what to do, as soon as something hit. */
export function OriginBanner() {
  const { t } = useTranslation(originTexts)
  const run = useView((view) => view.run)
  const findings = useFindings()
  useFinding()
  const [isFolded] = useFolded()
  if (findings.isPending) {
    return (
      <div className={classes['banner']} role="status" aria-busy aria-label={t('loading')}>
        <Skeleton height={isFolded ? 24 : 132} />
      </div>
    )
  }
  if (findings.error) {
    return (
      <div className={classes['banner']} role="alert">
        {t('failed', { message: findings.error.message })}
      </div>
    )
  }
  return findings.found.length === 0 ? null : <Banner key={run} {...findings} />
}

function Banner({ found, nodes }: Findings) {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const [chosen, setChosen] = useState('')
  const [hasDetails, setDetails] = useState(false)
  const [isFolded, fold] = useFolded()
  const finding = found.find((one) => one.key === chosen) ?? found[0] ?? null
  useOriginActions(finding, { isFolded, fold, hasDetails: hasDetails && !isFolded, setDetails })
  if (!finding) return null
  const isWarning = finding.kind === 'hit' && finding.hit.severity === 'warning'
  return (
    <section
      className={classes['banner']}
      data-severity={isWarning ? 'warning' : 'error'}
      data-folded={isFolded}
      data-testid="origin-banner"
      aria-label={t('region')}
    >
      <div className={classes['icon']} aria-hidden>
        {isWarning ? <IconAlertTriangle size={20} /> : <IconAlertOctagon size={20} />}
      </div>
      <div className={classes['body']}>
        <div className={classes['head']}>
          <Sentence finding={finding} nodes={nodes} isShort={isFolded} />
          {isFolded && <SourceLine finding={finding} />}
          {!isFolded && found.length > 1 && <Chips found={found} chosen={finding.key} choose={setChosen} />}
          <ActionButton
            id="origin.fold"
            icon={isFolded ? <IconChevronDown size={16} /> : <IconChevronUp size={16} />}
          />
        </div>
        {!isFolded && (
          <>
            <SourceLine finding={finding} />
            <ValuesLine finding={finding} />
            <NextStep finding={finding} />
            <div className={classes['buttons']}>
              <ActionButton id="origin.node" icon={<IconBinaryTree2 size={14} />} withLabel />
              <ActionButton id="origin.tensor" icon={<IconTable size={14} />} withLabel />
              {session?.capabilities.can_look_closer && isVague(finding) && (
                <ActionButton id="origin.closer" icon={<IconZoomIn size={14} />} withLabel />
              )}
              {stepOf(finding) !== session?.step && (
                <ActionButton id="origin.step" icon={<IconClockHour4 size={14} />} withLabel />
              )}
              {nodes > 0 && <ActionButton id="origin.hits" icon={<IconListDetails size={14} />} withLabel />}
              <ActionButton id="origin.details" icon={<IconCode size={14} />} withLabel />
            </div>
            {hasDetails && <Details finding={finding} />}
          </>
        )}
      </div>
    </section>
  )
}

function Sentence(props: { finding: Finding; nodes: number; isShort: boolean }) {
  const { finding, nodes, isShort } = props
  const { data: session } = useSession()
  const { t } = useTranslation(originTexts)
  const words = useConditionWords()
  const node = nodeOf(finding)
  let start: string
  let reason: string
  if (finding.kind === 'hit') {
    start = t('hit', { condition: words.label(finding.hit.condition), step: stepOf(finding) })
    reason = nodes > 1 ? t('alsoHit', { count: nodes }) : ''
  } else {
    const { anomaly, step, certain, arrived, line, unseen, is_older } = finding.origin
    const said = { anomaly: t(`anomalies.${anomaly}`, { defaultValue: anomaly }), step }
    start = t(arrived ? 'arrived' : certain && !unseen ? 'began' : 'firstSeen', said)
    if (arrived) reason = t(line ? 'notComputedButRead' : 'notComputed')
    else reason = certain ? t(`absent.${anomaly}`) : t('leftOpen')
    if (unseen) {
      const [first, last] = unseen
      const before = first === 1 ? (is_older ? 'wasBefore' : 'mayBeBefore') : 'unseen'
      reason += `; ${t(before, { step, first, last })}`
    }
  }
  return (
    <div className={classes['sentence']} aria-live="polite" data-testid="origin-sentence">
      <strong>{start}</strong> <NodeLink node={node} isStrong />{' '}
      {(session?.ranks.length ?? 1) > 1 && <span>({t('onRank', { rank: node.rank })}) </span>}
      {finding.kind === 'hit' && <HitMeasures hit={finding.hit} />}
      {reason && !isShort && <span className={classes['quiet']}>({reason})</span>}
    </div>
  )
}

function NextStep({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const next = useNextStep(finding)
  if (!next) return null
  return (
    <div className={classes['next']} data-testid="origin-next">
      <IconBulb size={15} aria-label={t('next')} role="img" />
      <span>{next}</span>
    </div>
  )
}

/** The other anomalies, to choose from. */
function Chips(props: { found: Finding[]; chosen: string; choose: (key: string) => void }) {
  const { t } = useTranslation(originTexts)
  const { t: tc } = useTranslation(conditionTexts)
  return (
    <div className={classes['chips']} role="group" aria-label={t('chooseFinding')}>
      {props.found.map((one) => (
        <button
          key={one.key}
          type="button"
          aria-pressed={one.key === props.chosen}
          onClick={() => props.choose(one.key)}
          data-testid="origin-finding"
        >
          {one.kind === 'hit' ? tc(`labels.${one.hit.condition}`) : t(`chips.${one.origin.anomaly}`)}
          <span> [{stepOf(one)}]</span>
        </button>
      ))}
    </div>
  )
}
